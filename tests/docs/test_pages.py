"""Every command and every Python block of the site runs; its links and its form are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page_session import PageSession, compare
from tests.docs.pages import LANGUAGES, ROOT, Block, broker_count, pages, prose, read_blocks
from tests.docs.spark_commands import SparkCommands

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("docs"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

NOT_RUN_MAX = 31
ROOT_PAGES = (ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md")
"""Pages of the site without blocks of their own."""
RUNS = {"sh", "python"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _is_of_make(block: Block) -> bool:
    """Whether the block only runs targets of the Makefile, which take minutes to hours."""
    lines = [line for line in block.text.splitlines() if line.strip()]
    return block.language == "sh" and all(line.startswith("make ") for line in lines)


def _runs(block: Block) -> bool:
    return block.language in RUNS and block.mark != "not run" and not _is_of_make(block)


def _runnable(path: Path) -> bool:
    return any(map(_runs, read_blocks(path)))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCommands]:
    commands = SparkCommands(tmp_path_factory.mktemp("spark-commands"))
    yield commands
    commands.close()


@pytest.mark.parametrize("path", list(filter(_runnable, pages())), ids=_name)
def test_commands_and_python_of_the_page_run(
    path: Path, tmp_path: Path, spark: SparkCommands
) -> None:
    with PageSession(tmp_path, spark, broker_count(path)) as session:
        for block in read_blocks(path):
            if _is_of_make(block):
                continue
            try:
                session.run(block)
            except Exception as error:
                raise AssertionError(f"{_name(path)}:{block.line}: {error}") from error
        session.finish()


@pytest.mark.parametrize("path", pages(), ids=_name)
def test_blocks_have_a_language_and_those_that_do_not_run_a_reason(path: Path) -> None:
    for block in read_blocks(path):
        where = f"{_name(path)}:{block.line}"
        assert block.language in LANGUAGES - {""}, f"{where}: no language that the tests know"
        if block.mark == "not run":
            assert block.language in RUNS, f"{where}: the block would not run anyway"
            assert len(block.reason.split()) >= 3, f"{where}: no reason"
            named = re.findall(r"tests/[\w/.]+", block.reason)
            assert not [each for each in named if not (ROOT / each).exists()], where


@pytest.mark.parametrize("path", pages(), ids=_name)
def test_targets_of_make_that_a_page_names_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([\w%-]+)(?: [\w%-]+)*:", makefile, re.MULTILINE)
    patterns = [target.replace("%", r"[\w-]+") for target in targets]
    text = path.read_text("utf-8")
    named = set(re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)) - {"evidence-NAME"}
    assert not {each for each in named if not any(re.fullmatch(p, each) for p in patterns)}


def test_few_blocks_are_not_run() -> None:
    found = [block for path in pages() for block in read_blocks(path) if block.mark == "not run"]
    assert len(found) <= NOT_RUN_MAX


@pytest.mark.parametrize("path", pages(), ids=_name)
def test_page_has_no_block_by_indentation(path: Path) -> None:
    """Such a block has no language, and no test would run it."""
    text = re.sub(r"^( *)```.*?^\1```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.M)
    assert not re.search(r"\n\n {4}(?![-*\d])\S", text)


def _anchors(path: Path) -> set[str]:
    """The anchors of the headings, as Python-Markdown names them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose_with_spans(path), re.MULTILINE):
        slug = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", slug))
    return found


def prose_with_spans(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", pages(), ids=_name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)", prose(path)):
        if target in {"architecture.md", "contributing.md", "changelog.md"}:
            linked = ROOT / target.upper().replace(".MD", ".md")  # pages that a hook adds
        else:
            linked = path.parent / target if target else path
        assert linked.exists(), f"{_name(path)} links to {target}"
        if anchor:
            assert anchor in _anchors(linked), f"{_name(path)} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/-]+\.md)", navigation)
    assert len(listed) == len(set(listed))
    of_the_root = {"architecture.md", "contributing.md", "changelog.md"}
    existing = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(listed) - of_the_root - existing <= {"kafka-semantics.md"}
    assert not existing - set(listed)


@pytest.mark.parametrize(
    "path", [*(path for path in pages() if path.name != "README.md"), *ROOT_PAGES], ids=_name
)
def test_page_begins_with_the_sentence_that_says_its_use(path: Path) -> None:
    first = path.read_text("utf-8").split("\n\n")[1]
    assert re.match(r"(On|With) this (page|reference|tutorial),? you ", first), first[:80]


def test_a_failing_command_and_a_wrong_output_are_found(
    tmp_path: Path, spark: SparkCommands
) -> None:
    with PageSession(tmp_path, spark) as session:
        with pytest.raises(AssertionError):
            session.run(Block(1, "sh", "odradek topic describe missing\n"))
        with pytest.raises(ZeroDivisionError):
            session.run(Block(1, "python", "1 / 0\n"))
        session.run(Block(1, "sh", "printf 'one\\ntwo\\n'\n"))
        session.run(Block(1, "text", "one\nt...\n", mark="output"))
        with pytest.raises(AssertionError):
            session.run(Block(1, "text", "two\none\n", mark="output"))
    compare("a  ... c\n", "x\na b b   c\n")
