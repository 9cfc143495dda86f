"""Rewriting of paths: contexts, slashes and encoded segments."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.errors import RegistryError
from odradek.registry.routes.paths import decode_segment, rewrite


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("/subjects/", "/subjects"),
        ("//subjects//a/versions/", "/subjects/a/versions"),
        ("/compatibility/subjects/a/versions/", "/compatibility/subjects/a/versions"),
        ("/subjects/a%2Fb/versions", "/subjects/a%2Fb/versions"),
        ("/contexts", "/contexts"),
        ("/contexts/", "/contexts"),
        ("/contexts/.c", "/contexts/:.c:"),
        ("/contexts/c", "/contexts/:.c:"),
        ("/contexts/:.c:", "/contexts/:.c:"),
        ("/contexts/%3A.c%3A", "/contexts/:.c:"),
        ("/contexts/:.:", "/"),
        ("/contexts/.", "/"),
        ("/contexts/:.:/subjects/a/versions", "/subjects/a/versions"),
        ("/contexts/.c/subjects/a/versions", "/subjects/:.c:a/versions"),
        ("/contexts/.c/subjects/a%2Fb", "/subjects/:.c:a%2Fb"),
        ("/contexts/.c/subjects/:.d:a", "/subjects/:.d:a"),
        ("/contexts/.c/subjects/%3A.d%3Aa", "/subjects/%3A.d%3Aa"),
        ("/contexts/.c/subjects/:*:a", "/subjects/:*:a"),
        ("/contexts/.c/subjects/subjects/versions", "/subjects/:.c:subjects/versions"),
        ("/contexts/.c/subjects/contexts/versions", "/subjects/:.c:contexts/versions"),
        (
            "/contexts/.c/compatibility/subjects/a/versions/1",
            "/compatibility/subjects/:.c:a/versions/1",
        ),
        ("/contexts/.c/config", "/config/:.c:"),
        ("/contexts/.c/config/a", "/config/:.c:a"),
        ("/contexts/.c/mode/", "/mode/:.c:"),
        ("/contexts/:.:/mode", "/mode"),
        ("/contexts/.c/schemas/ids/1", "/schemas/ids/1"),
        ("/contexts/.c/contexts", "/contexts"),
        ("/contexts/.c/v1/metadata/id", "/v1/metadata/id"),
        ("/contexts/ä/config", "/config/:.%C3%A4:"),
        ("/other/config/a/", "/other/config/a"),
    ],
)
def test_path_without_context(raw: str, expected: str) -> None:
    path, query_string = rewrite(raw.encode(), b"")
    assert path == expected
    if "/schemas" not in raw:
        assert query_string == b""


@pytest.mark.parametrize(
    ("raw", "query", "expected"),
    [
        ("/contexts/.c/schemas/ids/1", "", {"subject": ":.c:"}),
        ("/contexts/.c/schemas/ids/1", "subject=a", {"subject": ":.c:a"}),
        ("/contexts/.c/schemas/ids/1/versions", "subject=:.d:a", {"subject": ":.d:a"}),
        ("/contexts/:.:/schemas/ids/1", "", {"subject": ""}),
        ("/contexts/.c/schemas", "", {"subjectPrefix": ":.c:"}),
        ("/contexts/.c/schemas/", "subjectPrefix=a", {"subjectPrefix": ":.c:a"}),
        ("/contexts/.c/subjects", "deleted=true", {"deleted": "true", "subjectPrefix": ":.c:"}),
        ("/contexts/:.:/subjects", "", {"subjectPrefix": ""}),
        ("/contexts/:.:/subjects", "subjectPrefix=:*:", {"subjectPrefix": ":*:"}),
        ("/contexts/.c/schemas/guids/x", "format=f", {"format": "f"}),
        ("/subjects", "subjectPrefix=a", {"subjectPrefix": "a"}),
    ],
)
def test_query_without_context(raw: str, query: str, expected: dict[str, str]) -> None:
    _, query_string = rewrite(raw.encode(), query.encode())
    assert dict(parse_qsl(query_string.decode(), keep_blank_values=True)) == expected


@pytest.mark.parametrize("context", ["a:b", "a%3Ab", "::a:", "%FF"])
def test_invalid_context_is_400(context: str) -> None:
    with pytest.raises(RegistryError) as raised:
        rewrite(f"/contexts/{context}/subjects".encode(), b"")
    assert raised.value.code == 400


def test_segment_that_is_not_utf8_is_400() -> None:
    with pytest.raises(RegistryError) as raised:
        decode_segment("%FF")
    assert raised.value.code == 400


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_encoded_subject_is_one_segment(subject: str) -> None:
    raw = f"/subjects/{quote(subject, safe='')}/versions".encode()
    path, _ = rewrite(raw, b"")
    _, subjects, segment, versions = path.split("/")
    assert (subjects, decode_segment(segment), versions) == ("subjects", subject, "versions")


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_rewriting_of_a_rewritten_path_changes_nothing(subject: str) -> None:
    raw = f"/contexts/.c/subjects/{quote(subject, safe='')}".encode()
    once, query_string = rewrite(raw, b"")
    assert rewrite(once.encode("latin-1"), query_string) == (once, query_string)
