"""Whether a subject's mode and name permit a write. Pure."""

from __future__ import annotations

from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.errors import invalid_subject, operation_not_permitted
from odradek.registry.modes import Mode
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject


def require_valid(subject: QualifiedSubject, *, for_settings: bool = False) -> None:
    """Check the name of a subject.

    Raises:
        RegistryError: 42208, the name is not valid.
    """
    if not subject.is_valid(for_settings=for_settings):
        raise invalid_subject(str(subject))


def require_writable(state: RegistryState, subject: QualifiedSubject) -> None:
    """Check that a subject or context is not read-only.

    Raises:
        RegistryError: 42205, it is.
    """
    if state.mode_in_scope(subject).is_read_only:
        raise operation_not_permitted(f"{_named(subject)} is in read-only mode")


def require_registrable(
    state: RegistryState, subject: QualifiedSubject, request: SchemaRequest
) -> None:
    """Check that the mode of a subject permits a registration: with an id only in IMPORT mode.

    Raises:
        RegistryError: 42205, it does not.
    """
    require_writable(state, subject)
    mode = state.mode_in_scope(subject)
    if request.id >= 0 and not mode.is_import:
        raise operation_not_permitted(f"{_named(subject)} is not in import mode")
    if request.id < 0 and mode is not Mode.READWRITE:
        raise operation_not_permitted(f"{_named(subject)} is not in read-write mode")


def _named(subject: QualifiedSubject) -> str:
    name = "null" if subject.is_default_context else str(subject)
    return f"Subject {name} in context {subject.context_prefix}"
