"""The page on configuration is what the tables say."""

from __future__ import annotations

from tests.helpers.config_docs import PATH, render


def test_page_is_what_the_tables_say() -> None:
    assert PATH.read_text("utf-8") == render(), "run: python -m tests.helpers.config_docs"
