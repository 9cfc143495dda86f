"""Names of subjects, with the context that they belong to. Pure.

A qualified subject is ``:.context:name``. A name without this prefix belongs to the default context
``.``, and is written without it. The context ``.__GLOBAL`` has no subjects. Its config and its mode
apply to all contexts.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

DEFAULT_CONTEXT = "."
"""The context of subjects without a prefix."""

GLOBAL_CONTEXT = ".__GLOBAL"
"""The context whose config and mode apply to all contexts."""

WILDCARD = "*"
"""The context of ``:*:``, which matches every context."""

CONTEXT_PREFIX = ":."
"""A subject that begins with this text names its context."""

CONTEXT_WILDCARD = ":*:"
"""A prefix that matches the subjects of all contexts."""

RESERVED_NAMES = frozenset({"__GLOBAL", "__EMPTY"})
"""Names that no subject may have."""


@dataclass(frozen=True, slots=True, order=True)
class QualifiedSubject:
    """A subject of a context. With an empty name, it stands for the context as a whole."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> QualifiedSubject:
        """Return the subject of a text such as ``orders`` or ``:.sales:orders``.

        A text without a second colon (``:.sales``) stands for the context.
        """
        if text.startswith(CONTEXT_PREFIX):
            context, _, name = text[1:].partition(":")
            return cls(context, name)
        if text.startswith(CONTEXT_WILDCARD):
            return cls(WILDCARD, text[len(CONTEXT_WILDCARD) :])
        return cls(DEFAULT_CONTEXT, text)

    @classmethod
    def of_context(cls, context: str) -> QualifiedSubject:
        """Return the subject without a name that stands for a context such as ``.sales``."""
        return cls(context, "")

    def __str__(self) -> str:
        """Return the text that records and responses use."""
        return self.context_prefix + self.name

    @property
    def context_prefix(self) -> str:
        """The prefix of the context's subjects: empty for the default context."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def is_context(self) -> bool:
        """Whether it stands for a context as a whole."""
        return not self.name

    @property
    def is_default_context(self) -> bool:
        """Whether it stands for the default context, whose config and mode have no subject."""
        return self.context == DEFAULT_CONTEXT and not self.name

    @property
    def record_name(self) -> str | None:
        """The subject in the keys of records of configs and modes. None: the default context."""
        return None if self.is_default_context else str(self)

    @property
    def is_global_context(self) -> bool:
        """Whether it stands for all contexts."""
        return self.context == GLOBAL_CONTEXT and not self.name

    def matches(self, subject: QualifiedSubject) -> bool:
        """Whether this subject is `subject`, or a context that contains it."""
        if self == subject:
            return True
        return self.is_context and self.context in (GLOBAL_CONTEXT, subject.context)

    def relative(self, text: str) -> QualifiedSubject:
        """Return the subject that `text` names in a reference or an alias of this subject.

        A text without a context belongs to this subject's context.
        """
        subject = QualifiedSubject.parse(text)
        if subject.context == DEFAULT_CONTEXT:
            return QualifiedSubject(self.context, subject.name)
        return subject

    def is_valid(self, *, for_settings: bool = False) -> bool:
        """Whether a request may use this subject.

        Args:
            for_settings: The request concerns a config or a mode, which the global context may
                have.
        """
        if self.name in RESERVED_NAMES or any(map(_is_control, self.context + self.name)):
            return False
        return for_settings or self.context != GLOBAL_CONTEXT


def normalize_context(text: str) -> str:
    """Return the prefix for subjects of a context, from a path such as ``/contexts/sales``.

    Args:
        text: The context with or without its dot and colons.

    Returns:
        The prefix, such as ``:.sales:``. It is empty for the default context.

    Raises:
        ValueError: The context contains a colon.
    """
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise ValueError(f"Context name '{name}' cannot contain a colon")
    if not name.startswith("."):
        name = "." + name
    return "" if name == DEFAULT_CONTEXT else f":{name}:"


def has_prefix(subject: QualifiedSubject, prefix: str) -> bool:
    """Whether a subject begins with the prefix of a request.

    ``:*:or`` matches ``or...`` in all contexts, ``:.sales:or`` in one, ``or`` in the default
    context. ``:.sa`` without a second colon matches all subjects of contexts with this beginning.
    """
    if prefix.startswith(CONTEXT_PREFIX) and ":" not in prefix[1:]:
        return subject.context.startswith(prefix[1:])
    parsed = QualifiedSubject.parse(prefix)
    return parsed.context in (WILDCARD, subject.context) and subject.name.startswith(parsed.name)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"
