"""Hooks of MkDocs: pages of the site that are files of the repository's root.

`ARCHITECTURE.md`, `CONTRIBUTING.md` and `CHANGELOG.md` have one source, in the root. A link in them
to `docs/page.md` becomes a link to `page.md`. A page of `MAY_BE_MISSING` that does not exist is
removed from the navigation.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
MAY_BE_MISSING = {"contributing.md", "changelog.md", "kafka-semantics.md"}
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Remove optional pages that do not exist from the navigation."""
    for section in config.nav or []:
        for pages in section.values():
            if isinstance(pages, list):
                pages[:] = [page for page in pages if not _is_missing(page)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for page, source in ROOT_PAGES.items():
        if (ROOT / source).exists():
            text = _LINK.sub(_link_from_docs, (ROOT / source).read_text("utf-8"))
            files.append(File.generated(config, page, content=text))
    return files


def _is_missing(page: object) -> bool:
    if page not in MAY_BE_MISSING:
        return False
    assert isinstance(page, str)
    return not (ROOT / ROOT_PAGES.get(page, f"docs/{page}")).exists()


def _link_from_docs(match: re.Match[str]) -> str:
    """Return a link of a root file, rewritten for a page in docs/."""
    path, anchor = match[1], match[2] or ""
    root_pages = {source: page for page, source in ROOT_PAGES.items()}
    return f"]({root_pages.get(path, path.removeprefix('docs/'))}{anchor})"
