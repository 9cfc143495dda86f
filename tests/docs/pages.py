"""The pages of the site and their code blocks.

A comment before a block determines how the test treats the block:

- ``<!-- not run: REASON -->``: the block cannot run in a test.
- ``<!-- fails -->``: the command ends with an error, as the page says.
- ``<!-- own process -->``: the Python block starts Spark, so it runs in a process of its own.
- ``<!-- output -->``: the text is the output of the block before. ``...`` matches any text.

A page with the comment `CLUSTER` runs on a cluster. A block with a title is a file. A Python block
without a title is run as a program.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LANGUAGES = {
    "",
    "ini",
    "json",
    "mermaid",
    "properties",
    "python",
    "sh",
    "sql",
    "text",
    "toml",
    "yaml",
}

_FENCE = re.compile(r"^( *)```(\w*)(.*)$")
_COMMENT = re.compile(r"^ *<!-- (not run|fails|output|own process)(?:: (.+?))? -->$")
_TITLE = re.compile(r'title="([^"]+)"')
_SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)

CLUSTER = "<!-- the blocks of this page run on a cluster of three brokers -->"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `mark` is the kind of the comment before it, `reason` the comment's text."""

    line: int
    language: str
    text: str
    title: str = ""
    mark: str = ""
    reason: str = ""


def pages() -> list[Path]:
    """The pages that a reader gets: those of docs/, the README and the guide for contributors."""
    root = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [path for path in [*root, *sorted(DOCS.rglob("*.md"))] if path.exists()]


def broker_count(path: Path) -> int:
    """The number of brokers that a page needs."""
    return 3 if CLUSTER in path.read_text(encoding="utf-8") else 1


def read_blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, with included files in place of their snippets."""
    lines = path.read_text(encoding="utf-8").splitlines()
    blocks: list[Block] = []
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            number += 1
            continue
        indent, language, info = opening.groups()
        end = lines.index(f"{indent}```", number + 1)
        text = textwrap.dedent("\n".join(lines[number + 1 : end])) + "\n"
        comment = _COMMENT.match(lines[number - 1]) if number else None
        title = _TITLE.search(info)
        blocks.append(
            Block(
                number + 1,
                language,
                _SNIPPET.sub(lambda found: (ROOT / found[1]).read_text("utf-8"), text),
                title[1] if title else "",
                comment[1] if comment else "",
                (comment[2] or "") if comment else "",
            )
        )
        number = end + 1
    return blocks


def prose(path: Path) -> str:
    """The text of a page without its blocks and code spans."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", "", text)
