"""Deletion of a context: ``DELETE /contexts/{context}``. Pure."""

from __future__ import annotations

from odradek.registry.decisions.decision import Decision
from odradek.registry.errors import bad_request, context_not_empty
from odradek.registry.records import ContextRecord
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject, normalize_context


def delete_context(state: RegistryState, name: str) -> Decision:
    """Delete a context without schemas.

    Args:
        state: The state.
        name: The context, with or without its dot and colons.

    Returns:
        The record, and no body: the status of the response is 204.

    Raises:
        RegistryError: 400, the name contains a colon. 42211, the context has schemas, of which some
            may be soft-deleted.
    """
    try:
        prefix = normalize_context(name)
    except ValueError as error:
        raise bad_request(str(error)) from error
    context = QualifiedSubject.parse(prefix)
    if state.has_subject(context, deleted=True):
        raise context_not_empty(prefix)
    is_listed = context.context in state.contexts() and not context.is_default_context
    return Decision((ContextRecord(context.context, present=False),) if is_listed else (), None)
