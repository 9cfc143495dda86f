"""Tests of qualified subjects, contexts and prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.subjects import QualifiedSubject, has_prefix, normalize_context

CONTEXTS = st.sampled_from([".", ".sales", ".s", ".__GLOBAL"])
NAMES = st.text("abc:.*", max_size=5).filter(lambda name: not name.startswith((":.", ":*:")))


@pytest.mark.parametrize(
    ("text", "context", "name"),
    [
        ("orders", ".", "orders"),
        ("", ".", ""),
        (":.sales:orders", ".sales", "orders"),
        (":.sales:", ".sales", ""),
        (":.sales", ".sales", ""),
        (":.:orders", ".", "orders"),
        (":.sales:a:b", ".sales", "a:b"),
        (":*:orders", "*", "orders"),
        (":orders", ".", ":orders"),
    ],
)
def test_text_names_context_and_subject(text: str, context: str, name: str) -> None:
    assert QualifiedSubject.parse(text) == QualifiedSubject(context, name)


@given(CONTEXTS, NAMES)
def test_text_of_a_subject_parses_to_the_subject(context: str, name: str) -> None:
    subject = QualifiedSubject(context, name)

    assert QualifiedSubject.parse(str(subject)) == subject


def test_default_context_has_no_prefix() -> None:
    assert str(QualifiedSubject.parse(":.:orders")) == "orders"


@pytest.mark.parametrize(
    ("text", "subject", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("", "orders", True),
        ("", ":.sales:orders", False),
        (":.sales:", ":.sales:orders", True),
        (":.sales:", ":.sales2:orders", False),
        (":.__GLOBAL:", ":.sales:orders", True),
        (":.__GLOBAL:", "orders", True),
        (":.sales:orders", "orders", False),
    ],
)
def test_context_matches_its_subjects(text: str, subject: str, matches: bool) -> None:
    assert QualifiedSubject.parse(text).matches(QualifiedSubject.parse(subject)) is matches


@pytest.mark.parametrize(
    ("parent", "text", "expected"),
    [
        ("orders", "items", "items"),
        (":.sales:orders", "items", ":.sales:items"),
        (":.sales:orders", ":.shop:items", ":.shop:items"),
        ("orders", ":.shop:items", ":.shop:items"),
    ],
)
def test_reference_belongs_to_the_context_of_its_schema(
    parent: str, text: str, expected: str
) -> None:
    assert str(QualifiedSubject.parse(parent).relative(text)) == expected


@pytest.mark.parametrize(
    ("text", "valid", "valid_for_settings"),
    [
        ("orders", True, True),
        ("", True, True),
        ("__GLOBAL", False, False),
        ("__EMPTY", False, False),
        (":.sales:__EMPTY", False, False),
        ("a\nb", False, False),
        ("a\x7fb", False, False),
        (":.__GLOBAL:", False, True),
        (":.__GLOBAL:orders", False, True),
    ],
)
def test_subjects_of_requests_are_validated(
    text: str, valid: bool, valid_for_settings: bool
) -> None:
    subject = QualifiedSubject.parse(text)

    assert subject.is_valid() is valid
    assert subject.is_valid(for_settings=True) is valid_for_settings


@pytest.mark.parametrize(
    ("prefix", "subject", "expected"),
    [
        ("", "orders", True),
        ("", ":.sales:orders", False),
        ("or", "orders", True),
        ("or", "items", False),
        ("or", ":.sales:orders", False),
        (":*:", "orders", True),
        (":*:", ":.sales:orders", True),
        (":*:or", ":.sales:orders", True),
        (":*:or", ":.sales:items", False),
        (":.sales:", ":.sales:orders", True),
        (":.sales:it", ":.sales:orders", False),
        (":.sa", ":.sales:orders", True),
        (":.sa", ":.shop:orders", False),
        (":.", "orders", True),
    ],
)
def test_prefixes_select_contexts_and_subjects(prefix: str, subject: str, expected: bool) -> None:
    assert has_prefix(QualifiedSubject.parse(subject), prefix) is expected


@pytest.mark.parametrize("text", ["sales", ".sales", ":.sales:", ":.sales", ".sales:"])
def test_context_is_normalized(text: str) -> None:
    assert normalize_context(text) == ":.sales:"


@pytest.mark.parametrize("text", [".", "", ":.:"])
def test_default_context_is_normalized_to_nothing(text: str) -> None:
    assert normalize_context(text) == ""


def test_context_with_a_colon_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot contain a colon"):
        normalize_context(".sales:orders")
