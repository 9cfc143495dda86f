"""Report sentences that break the rules of plain English: `python -m testkit.prose [FILE...]`.

Reads docstrings, comments, Markdown, and the string literals that users see: arguments of log
calls, of exceptions, and of command-line help. Of programs in C, Go, Java, JavaScript and shell it
reads the comments. Code, code blocks, headings and generated modules are not prose. CONTRIBUTING.md
has the rules; `tests/test_prose.py` has the limits.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("src/odradek/protocol/messages/", "src/odradek/protocol/record_types.py")
PROGRAMS = {".c", ".go", ".java", ".js"}
"""Programs with comments of C's form."""
WORDS_MAX = 32
"""A sentence of more words is reported as long."""
LONG = "long"

_SUBJECT = r"(?:what|who|whoever|whatever|whichever)"
_QUESTION = r"(?:is|are|does|do|was|were|happens if)\b[^.]*\?"
PATTERNS = {
    # "What cannot be sent waits": the sentence does not name its subject.
    "headless relative clause": re.compile(
        rf"(?:^|[.:;,(]\s+|\band\s+|\bbut\s+){_SUBJECT}\s+(?!{_QUESTION})\w+", re.IGNORECASE
    ),
    "people for components": re.compile(
        r"\b(?:nobody|everybody|somebody|anybody|everyone|someone)\b", re.IGNORECASE
    ),
    "one/those that": re.compile(
        r"\b(?:one|those)\s+(?:that|which)\b|\bthat\s+of\b", re.IGNORECASE
    ),
    "told": re.compile(r"\b(?:told|tells?)\b", re.IGNORECASE),
    "old-fashioned": re.compile(
        r"\b(?:anew|meanwhile|no more(?!\s+than)|any more|whereof|thereof|by that)\b", re.IGNORECASE
    ),
    "semicolons": re.compile(r";.*;"),
}

_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_LOGGERS = {"logger", "_logger", "log", "_log"}
_HELP_CALLS = {
    "Option",
    "Argument",
    "add_argument",
    "add_parser",
    "add_typer",
    "ArgumentParser",
    "Typer",
}
_HELP_KEYWORDS = {"help", "epilog", "description", "short_help"}
_LIST_ITEM = re.compile(r"(?:[-*]|\d+\.)\s+")
# A string, so that a URL in it is no comment; a block; a run of comment lines.
_C_COMMENT = re.compile(
    r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`"""
    r"|/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*",
    re.DOTALL,
)
_C_MARGIN = re.compile(r"^[ \t]*(?://+|/\*+|\*/|\*)?|\*/$", re.MULTILINE)
_C_CODE = re.compile(r"^(?:\t| {3}).*$", re.MULTILINE)
# Exceptions that are made before they are raised. A call that is raised counts whatever its name.
_EXCEPTION = re.compile(r"(?:Error|Exception|Exit|Malformed\w*|Refused|CloseConnection|Abandoned)$")


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence that breaks a rule. `kind` is a key of `PATTERNS`, or `LONG`."""

    path: str
    line: int
    kind: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.sentence[:160]}"


@dataclass(slots=True)
class Report:
    """The findings of some files and the number of words that were read."""

    words: int
    findings: list[Finding]

    def rate(self, *, long: bool = True) -> float:
        """Findings per 1,000 words, with or without long sentences."""
        count = sum(long or each.kind != LONG for each in self.findings)
        return 1000 * count / max(self.words, 1)


def prose_files() -> list[Path]:
    """The pages, modules and programs of the project that git knows, without generated ones."""
    patterns = ["*.py", "*.md", "scripts/*", *(f"*{suffix}" for suffix in sorted(PROGRAMS))]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [
        ROOT / each
        for each in sorted(set(listed))
        if not each.startswith(GENERATED) and (ROOT / each).exists()
    ]


def read_prose(path: Path) -> list[tuple[int, str]]:
    """The (line, text) of each piece of prose in a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return list(_of_markdown(source))
    if path.suffix in PROGRAMS:
        return list(_of_c(source))
    return list(_of_python(source) if path.suffix == ".py" else _of_shell(source))


def check(paths: Iterable[Path], base: str | None = None) -> Report:
    """Read the files. With `base` only prose on lines that changed since that commit counts."""
    report = Report(0, [])
    for path in paths:
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        changed = _changed_lines(name, base) if base else None
        for line, text in read_prose(path):
            span = range(line, line + text.count("\n") + 1)
            if changed is not None and changed.isdisjoint(span):
                continue
            report.words += len(text.split())
            report.findings += (
                Finding(name, line, kind, sentence)
                for sentence in _sentences(text)
                for kind in _kinds(sentence)
            )
    return report


def _sentences(text: str) -> list[str]:
    one_line = re.sub(r"``?[^`]*``?", "X", " ".join(text.split()))
    return re.split(r"(?<=[.?!])\s+", one_line)


def _kinds(sentence: str) -> Iterator[str]:
    for kind, pattern in PATTERNS.items():
        if pattern.search(sentence):
            yield kind
    if len(sentence.split()) > WORDS_MAX:
        yield LONG


def _of_python(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):  # docstrings, those of attributes included
                yield node.lineno, node.value.value
        elif isinstance(node, ast.Call):
            yield from _of_call(node, is_raised=id(node) in raised)
    yield from _comments(source)


def _of_call(call: ast.Call, *, is_raised: bool) -> Iterator[tuple[int, str]]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    arguments: list[ast.expr] = []
    if name in _LOG_METHODS and isinstance(function, ast.Attribute):
        if getattr(function.value, "id", getattr(function.value, "attr", "")) in _LOGGERS:
            arguments = call.args
    elif is_raised or _EXCEPTION.search(name):
        arguments = call.args
    elif name in _HELP_CALLS:
        arguments = [each.value for each in call.keywords if each.arg in _HELP_KEYWORDS]
    for argument in arguments:
        text = _literal(argument)
        if " " in text:  # a single word is a name or a code
            yield argument.lineno, text


def _literal(node: ast.expr) -> str:
    """The text of a string literal. A placeholder counts as one word."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%[sdrf]", "X", node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = (_literal(each) if isinstance(each, ast.Constant) else "X" for each in node.values)
        return "".join(parts)
    return ""


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Each run of comment lines as one text."""
    run: list[str] = []
    start = last = -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("#!", "# type:", "# noqa")):
            continue
        if token.start[0] != last + 1 and run:
            yield start, "\n".join(run)
            run = []
        if not run:
            start = token.start[0]
        run.append(token.string.lstrip("# "))
        last = token.start[0]
    if run:
        yield start, "\n".join(run)


def _of_c(source: str) -> Iterator[tuple[int, str]]:
    """Each paragraph of a comment. An indented line is code, such as a usage line."""
    for match in _C_COMMENT.finditer(source):
        if match[0].startswith(("//", "/*")):
            start = source.count("\n", 0, match.start()) + 1
            text = _C_CODE.sub("", _C_MARGIN.sub("", match[0])).replace("<p>", "")
            yield from _paragraphs(text, start)


def _of_shell(source: str) -> Iterator[tuple[int, str]]:
    """Each run of lines that are comments."""
    lines = [line.lstrip() for line in source.splitlines()]
    text = "\n".join(
        line.lstrip("# ") if line.startswith("#") and not line.startswith("#!") else ""
        for line in lines
    )
    yield from _paragraphs(text, 1)


def _paragraphs(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The paragraphs of a text, each with the number of its first line."""
    for match in re.finditer(r"\S[^\n]*(?:\n[ \t]*\S[^\n]*)*", text):
        yield start + text.count("\n", 0, match.start()), match[0]


def _of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Each paragraph, list item and table cell outside of code blocks."""
    fenced = False
    run: list[str] = []
    start = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        text = line.lstrip()
        if text.startswith("```"):
            fenced = not fenced
        if fenced or not text or text.startswith(("```", "#", "|--", "---", "<!--")):
            if run:
                yield start, "\n".join(run)
            run = []
            continue
        item = _LIST_ITEM.match(text)
        if run and (item or text.startswith("|")):
            yield start, "\n".join(run)
            run = []
        if text.startswith("|"):
            yield from ((number, cell.strip()) for cell in text.strip("| ").split(" | "))
            continue
        if not run:
            start = number
        run.append(text[item.end() :] if item else text)


def _changed_lines(name: str, base: str) -> set[int]:
    command = ["git", "diff", "-U0", base, "--", name]
    diff = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines: set[int] = set()
    for begin, count in re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", diff, re.MULTILINE):
        lines.update(range(int(begin), int(begin) + int(count or 1)))
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print the findings and their rate. Return 1 when there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m testkit.prose", description="Report sentences that break the prose rules."
    )
    parser.add_argument("--max", type=int, default=40, help="Number of findings to print.")
    parser.add_argument("--base", help="Read only lines that changed since this commit.")
    parser.add_argument("files", nargs="*", type=Path, help="Default: all files of the project.")
    options = parser.parse_args(arguments)
    paths = [each.resolve() for each in options.files] or prose_files()
    report = check(paths, options.base)
    for finding in report.findings[: options.max]:
        print(finding)
    kinds = Counter(each.kind for each in report.findings)
    print(
        f"{len(report.findings)} findings in {report.words} words, {report.rate():.2f} per 1,000, "
        f"{report.rate(long=False):.2f} without long sentences: "
        + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    )
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())
