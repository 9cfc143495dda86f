"""Parameters in query strings and paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.errors import RegistryError
from odradek.registry.routes.parameters import (
    SCHEMAS_LIMIT,
    UNLIMITED,
    Page,
    QueryParameters,
    parse_integer,
    parse_version,
)
from odradek.registry.state import LATEST_VERSION


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"deleted=true", True),
        (b"deleted=True", True),  # confluent-kafka-python formats some flags with str()
        (b"deleted=TRUE", True),
        (b"deleted=false", False),
        (b"deleted=1", False),
        (b"deleted=", False),
        (b"", False),
        (b"deleted_only=true", False),
        (b"deleted=true&deleted=false", True),
    ],
)
def test_flag_is_true_for_the_text_true_in_any_case(query: bytes, expected: bool) -> None:
    assert QueryParameters(query).flag("deleted") is expected


def test_text_is_decoded_once() -> None:
    query = QueryParameters(b"subject=a%2Fb+c&key=a&key=b&empty=")
    assert query.text("subject") == "a/b c"
    assert query.texts("key") == ["a", "b"]
    assert query.optional_text("empty") == ""
    assert query.optional_text("absent") is None
    assert query.text("absent", "default") == "default"


@pytest.mark.parametrize("text", ["", "a", "1.0", "1_0", " 1", "2147483648", "99999999999", "٣"])
def test_malformed_number_is_404(text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        parse_integer(text)
    assert (raised.value.code, raised.value.message) == (404, "HTTP 404 Not Found")


@pytest.mark.parametrize(("text", "expected"), [("0", 0), ("-1", -1), ("2147483647", 2**31 - 1)])
def test_numbers(text: str, expected: int) -> None:
    assert parse_integer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", LATEST_VERSION),
        ("Latest", LATEST_VERSION),
        (" latest ", LATEST_VERSION),
        ("-1", LATEST_VERSION),
        ("7", 7),
    ],
)
def test_versions(text: str, expected: int) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize("text", ["0", "-2", "", "first", "1.5", "2147483648", "earliest"])
def test_malformed_version_is_42202_and_names_the_text(text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        parse_version(text)
    assert raised.value.code == 42202
    assert f"'{text}'" in raised.value.message


@pytest.mark.parametrize(
    ("query", "limit", "expected"),
    [
        (b"", UNLIMITED, Page(0, UNLIMITED)),
        (b"offset=0&limit=-1", UNLIMITED, Page(0, UNLIMITED)),
        (b"offset=3&limit=2", UNLIMITED, Page(3, 2)),
        (b"limit=0", SCHEMAS_LIMIT, Page(0, SCHEMAS_LIMIT)),
        (b"limit=1001", SCHEMAS_LIMIT, Page(0, SCHEMAS_LIMIT)),
        (b"limit=1000", SCHEMAS_LIMIT, Page(0, 1000)),
        (b"offset=-5", UNLIMITED, Page(0, UNLIMITED)),
    ],
)
def test_pages(query: bytes, limit: int, expected: Page) -> None:
    assert Page.of(QueryParameters(query), limit) == expected


def test_malformed_page_is_404() -> None:
    with pytest.raises(RegistryError):
        Page.of(QueryParameters(b"limit=ten"))


@given(st.lists(st.integers()), st.integers(1, 9))
def test_pages_of_a_list_join_to_the_list(elements: list[int], limit: int) -> None:
    pages = [Page(offset, limit).of_elements(elements) for offset in range(0, len(elements), limit)]
    assert [each for page in pages for each in page] == elements
    assert all(len(page) <= limit for page in pages)
