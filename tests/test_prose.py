"""The prose of the project follows the rules of plain English (`testkit/prose.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.prose import LONG, check, prose_files, read_prose

FINDINGS_MAX = 2.5
"""Findings per 1,000 words."""
SHORT_FINDINGS_MAX = 1.5
"""The same without long sentences."""

PLANTED = {
    "headless relative clause": "What cannot be sent waits.",
    "people for components": "A log that nobody reads stays.",
    "one/those that": "The partition takes the one that is next.",
    "told": "The client is told to wait.",
    "old-fashioned": "The request is sent anew.",
    "semicolons": "It stops; it waits; it goes on.",
    LONG: " ".join(["word"] * 33) + ".",
}


def test_the_project_stays_below_the_limits_of_findings() -> None:
    report = check(prose_files())
    worst = "\n".join(str(each) for each in report.findings[:40])
    assert report.rate() <= FINDINGS_MAX, worst
    assert report.rate(long=False) <= SHORT_FINDINGS_MAX, worst


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize(
    "template",
    [
        '"""{}"""\n',
        "# {}\nx = 1\n",
        'X = 1\n"""{}"""\n',
        'logger.warning("{}", x)\n',
        'raise ValueError("{}")\n',
        'raise KafkaError(code, f"{} {{x}}")\n',
        'raise UnreadableMetadata("{}") from error\n',
        'app.add_typer(topic, help="{}")\n',
        'typer.Option(help="{}")\n',
        'parser.add_argument("--x", help="{}")\n',
    ],
)
def test_a_planted_sentence_is_found_in_python(tmp_path: Path, kind: str, template: str) -> None:
    file = tmp_path / "planted.py"
    file.write_text(template.format(PLANTED[kind]))
    assert kind in {each.kind for each in check([file]).findings}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("template", ["{}\n", "- {}\n", "| x | {} |\n", "Text.\n\n{}\n"])
def test_a_planted_sentence_is_found_in_markdown(tmp_path: Path, kind: str, template: str) -> None:
    file = tmp_path / "planted.md"
    file.write_text(template.format(PLANTED[kind]))
    assert kind in {each.kind for each in check([file]).findings}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("planted.go", "// {}\nfunc f() {{}}\n"),
        ("planted.js", "let x = 1 // {}\n"),
        ("planted.java", "/**\n * A class.\n *\n * <p>{}\n */\nclass A {{}}\n"),
        ("planted.c", "int x; /* {} */\n"),
        ("planted", "#!/bin/sh\n# {}\nset -eu\n"),
    ],
)
def test_a_planted_sentence_is_found_in_the_comment_of_a_program(
    tmp_path: Path, kind: str, name: str, template: str
) -> None:
    file = tmp_path / name
    file.write_text(template.format(PLANTED[kind]))
    assert kind in {each.kind for each in check([file]).findings}


def test_a_comment_of_a_program_is_read_by_paragraphs(tmp_path: Path) -> None:
    program = tmp_path / "program.go"
    program.write_text(
        'x := "a://b" // First\n\t// text.\n//\n// Second.\n//\tcode\ny := `// c`\n/* Third */\n'
    )
    assert read_prose(program) == [(1, "First\n text."), (4, "Second."), (7, "Third ")]
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n# First\n# text.\n\nset -eu\n  # Second.\n")
    assert read_prose(script) == [(2, "First\ntext."), (6, "Second.")]


def test_code_and_headings_are_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```\nnobody told anybody\n```\n\nText with `nobody`.\n")
    assert check([page]).findings == []
    module = tmp_path / "module.py"
    module.write_text('x = "nobody"\nfind("what nobody was told", nobody)\n')
    assert read_prose(module) == []
