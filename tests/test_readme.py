"""The README is one page, and its Python program runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_ten_lines_of_python_print_the_produced_records(tmp_path: Path) -> None:
    program = blocks("python")[0]
    statements = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.stmt)]
    assert len(statements) == 10
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "b'viewed'\n"


def test_it_is_one_page_with_two_commands() -> None:
    """`tests/docs` runs the commands of the other pages."""
    assert README.count("\n") <= 62
    (block,) = blocks("sh")
    assert block.splitlines() == ["pip install .", "odradek serve"]


def test_its_picture_and_its_links_are_in_the_repository() -> None:
    root = Path(__file__).parents[1]
    links = re.findall(r"\]\((?!\w+:)([^)#]+)", README)
    assert "docs/demo.png" in links
    assert not [link for link in links if not (root / link).exists()]
