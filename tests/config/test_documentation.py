"""docs/configuration.md is up to date with the config tables."""

from __future__ import annotations

from tests.helpers.config_docs import PATH, render


def test_page_is_up_to_date_with_the_tables() -> None:
    assert PATH.read_text("utf-8") == render(), "run: python -m tests.helpers.config_docs"
