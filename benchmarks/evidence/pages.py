"""Tables in pages that are made from records, between two comments::

    <!-- evidence: commits -->
    ...
    <!-- end of evidence -->

The name of an experiment, or `NAME.part` for one of its texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evidence import record as records
from benchmarks.evidence.experiment import Experiment
from benchmarks.evidence.record import Record

END = "<!-- end of evidence -->"
MARKER = re.compile(rf"<!-- evidence: ([\w.-]+) -->\n(.*?){re.escape(END)}", re.S)
LIST = "list"
MISSED = "missed"
MISSED_MARK = "**missed**"


@dataclass(frozen=True, slots=True)
class Page:
    """A page with the names of its tables."""

    path: Path
    text: str

    @property
    def names(self) -> list[str]:
        return [match[1] for match in MARKER.finditer(self.text)]


def pages(root: Path) -> list[Page]:
    """The pages that may have tables."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [Page(path, path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def snippets(
    experiments: Mapping[str, Experiment],
    folder: Path,
    names: Iterable[str],
    on_pages: Mapping[str, list[str]],
) -> dict[str, str]:
    """The texts for these names. An unknown name raises KeyError."""
    found: dict[str, str] = {}
    for name in names:
        if name in found:
            continue
        if name == LIST:
            found[LIST] = listing(experiments, folder, on_pages)
            continue
        if name == MISSED:
            found[MISSED] = missed(experiments, folder)
            continue
        experiment = experiments[name.partition(".")[0]]
        path = records.published(experiment.name, folder)
        if path.exists():
            found |= experiment.snippets(records.load(path))
            found[name]
        else:
            found[name] = experiment.without_record()
    return found


def listing(
    experiments: Mapping[str, Experiment], folder: Path, on_pages: Mapping[str, list[str]]
) -> str:
    """Return a table of all experiments with the date and the commit of their records."""
    lines = [
        "| experiment | what it shows | pages | minutes | machine | record of commit | taken |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, experiment in experiments.items():
        path = records.published(name, folder)
        record = records.load(path) if path.exists() else None
        links = ", ".join(f"[{page}]({page})" for page in on_pages.get(name, []))
        commit = f"`{record.commit[:7]}`" if record else "none"
        verdict = experiment.verdict(record) if record else ""
        verdict = f" ({verdict})" if verdict else ""
        machine = "alone" if experiment.is_timed else "shared"
        lines.append(
            f"| `{name}` | {experiment.title} | {links} | {experiment.minutes} | {machine} "
            f"| {commit}{verdict} | {record.date if record else '-'} |"
        )
    return "\n".join(lines)


def missed(experiments: Mapping[str, Experiment], folder: Path) -> str:
    """Return a table of all rows of all records that miss their target."""
    lines = []
    for name, experiment in experiments.items():
        path = records.published(name, folder)
        if not path.exists():
            continue
        for text in experiment.snippets(records.load(path)).values():
            rows = [line for line in text.splitlines() if line.startswith("|")]
            for cells in ([cell.strip() for cell in row.split("|")] for row in rows):
                for verdict in cells:
                    if MISSED_MARK in verdict:
                        # The second column of most tables is the metric, and of others a value.
                        is_value = cells[2][:1].isdigit()
                        row = cells[1] if is_value else f"{cells[1]}: {cells[2]}"
                        lines.append(f"| `{name}` | {row} | {verdict} |")
    head = ["| experiment | row | target |", "|---|---|---|"]
    return "\n".join([*head, *lines]) if lines else "Every row meets its target."


def names_by_page(found: Iterable[Page], docs: Path) -> dict[str, list[str]]:
    """The pages below docs/ on which an experiment has a table."""
    on_pages: dict[str, list[str]] = {}
    for page in found:
        for name in {name.partition(".")[0]: None for name in page.names}:
            if docs in page.path.parents:
                on_pages.setdefault(name, []).append(str(page.path.relative_to(docs)))
    return on_pages


def rendered(text: str, texts: Mapping[str, str]) -> str:
    """Return the page with the texts between its markers."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- evidence: {match[1]} -->\n\n{texts[match[1]].strip()}\n\n{END}"

    return MARKER.sub(fill, text)


def render(experiments: Mapping[str, Experiment], root: Path) -> list[Path]:
    """Write each page whose tables differ from the records; return their paths."""
    changed = []
    for page, text in _both(experiments, root):
        if text != page.text:
            page.path.write_text(text, encoding="utf-8")
            changed.append(page.path)
    return changed


def problems(experiments: Mapping[str, Experiment], root: Path) -> list[str]:
    """Return the tables that differ from their records, and the records that no page shows."""
    found = [
        f"{page.path.relative_to(root)}: a table differs from its record: make evidence-render"
        for page, text in _both(experiments, root)
        if text != page.text
    ]
    shown: set[str] = set()
    for page in pages(root):
        shown |= {name.partition(".")[0] for name in page.names}
        if page.text.count("<!-- evidence: ") != len(page.names):
            found.append(f"{page.path.relative_to(root)}: a marker has no end")
    folder = root / "docs" / "evidence"
    for path in sorted(folder.glob("*.json")):
        if path.with_suffix(".md").exists():
            continue  # `make bench-commits` writes a page with its values.
        if path.stem not in experiments:
            found.append(f"{path.relative_to(root)}: no such experiment")
        elif path.stem not in shown:
            found.append(f"{path.relative_to(root)}: no page shows it")
        elif not is_publishable(records.load(path), experiments[path.stem]):
            found.append(f"{path.relative_to(root)}: a trial or incomplete")
    return found


def is_publishable(record: Record, experiment: Experiment) -> bool:
    return (record.complete or experiment.keeps_earlier) and not record.src_modified


def ages(
    experiments: Mapping[str, Experiment],
    folder: Path,
    since: Callable[[Record, tuple[str, ...]], records.Age | None] = records.commits_since,
) -> list[str]:
    """A line for each experiment: how many commits of src/ its record is behind."""
    lines = []
    for name, experiment in experiments.items():
        path = records.published(name, folder)
        if not path.exists():
            lines.append(f"{name:18} no record")
            continue
        record = records.load(path)
        age = _age(since(record, experiment.not_run), experiment.not_run)
        scaled = "" if record.scale == 1.0 else f", scaled by {record.scale:g}"
        failed = f", {len(record.failures)} failed" if record.failures else ""
        lines.append(f"{name:18} {record.commit[:7]} {record.date:24} {age}{scaled}{failed}")
    return lines


def _age(age: records.Age | None, not_run: tuple[str, ...]) -> str:
    if age is None:
        return "unknown"
    if not age.commits:
        return "current"
    measured = f", {age.measured} of them in what it runs" if not_run else ""
    return f"{age.commits} commits of src/ since{measured}"


def _both(experiments: Mapping[str, Experiment], root: Path) -> list[tuple[Page, str]]:
    """Return each page that has tables, with its text as rendered from the records."""
    found = [page for page in pages(root) if page.names]
    docs = root / "docs"
    names = [name for page in found for name in page.names]
    texts = snippets(experiments, docs / "evidence", names, names_by_page(found, docs))
    return [(page, rendered(page.text, texts)) for page in found]
