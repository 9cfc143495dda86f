"""Hooks of MkDocs: pages from the repository's root, and diagrams that need no network.

`ARCHITECTURE.md`, `CONTRIBUTING.md` and `CHANGELOG.md` have one source, in the root. A link in them
to `docs/page.md` becomes a link to `page.md`.

The pages load nothing from other hosts. If one does, the build fails. The theme loads Mermaid from
another host, unless a page has loaded it before. The site therefore has its own copy
(`scripts/ensure-mermaid`), and each page with a diagram loads this copy first.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
MERMAID = ROOT / ".cache" / "mermaid"
MERMAID_FILES = ("mermaid.min.js", "LICENSE")
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
_DIAGRAM = '<pre class="mermaid">'
# Links to other sites (<a href>) are no requests of the page.
_REQUEST = re.compile(
    r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'\s>]*"""
    r"""|<link\b(?![^>]*canonical)[^>]*\bhref=["']?(?:https?:)?//[^"'\s>]*"""
)
_FIRST_SCRIPT = re.compile(r"<script src=")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root and the files of Mermaid."""
    for page, source in ROOT_PAGES.items():
        text = _LINK.sub(_link_from_docs, (ROOT / source).read_text("utf-8"))
        files.append(File.generated(config, page, content=text))
    for name in MERMAID_FILES:
        path = MERMAID / name
        if not path.exists():
            raise PluginError(f"{path} does not exist. Run scripts/ensure-mermaid.")
        files.append(File.generated(config, f"assets/mermaid/{name}", abs_src_path=str(path)))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load the site's copy of Mermaid before the theme's scripts, on pages with a diagram.

    Raises:
        PluginError: The page would load something from another host.
    """
    if request := _REQUEST.search(output):
        raise PluginError(f"{page.url} needs another host: {request[0]}")
    if _DIAGRAM not in output:
        return output
    address = get_relative_url("assets/mermaid/mermaid.min.js", page.url)
    script = f'<script src="{address}"></script>\n'
    text, count = _FIRST_SCRIPT.subn(lambda first: script + first[0], output, count=1)
    if not count:
        raise PluginError(f"{page.url} has no script of the theme before which Mermaid can load.")
    return text


def _link_from_docs(match: re.Match[str]) -> str:
    """Return a link of a root file, rewritten for a page in docs/."""
    path, anchor = match[1], match[2] or ""
    root_pages = {source: page for page, source in ROOT_PAGES.items()}
    return f"]({root_pages.get(path, path.removeprefix('docs/'))}{anchor})"
