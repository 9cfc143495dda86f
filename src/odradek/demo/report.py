"""The demo's final report: the counts, the top pages, and commands to continue with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from odradek.demo.commands import shown

if TYPE_CHECKING:
    from odradek.demo.results import Counts


@dataclass(frozen=True, slots=True)
class Ends:
    """Counts outside the tables: sent, in the topic (by ListOffsets), and by the live group."""

    sent: int
    in_topic: int
    counted_live: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """All counts and results of the demo."""

    ends: Ends
    counts: Counts
    reasons: list[tuple[str, int]]
    top_pages: list[tuple[str, int]]
    picture: Path

    @property
    def is_right(self) -> bool:
        """Whether all counts are equal, and no record is in the tables twice."""
        ends, counts = self.ends, self.counts
        same = {ends.sent, ends.in_topic, ends.counted_live, counts.rows, counts.distinct_offsets}
        return len(same) == 1


def show(outcome: Outcome, console: Console) -> None:
    """Print the counts and the top pages."""
    ends, counts = outcome.ends, outcome.counts
    rows = (
        ("sent by the client", ends.sent),
        ("in the topic (ListOffsets, fresh client)", ends.in_topic),
        ("counted live by the consumer group", ends.counted_live),
        ("in the tables (fresh Spark session)", counts.rows),
        ("   different offsets among them", counts.distinct_offsets),
    )
    table = Table("Where", "Records", "", box=None, padding=(0, 2), title_justify="left")
    table.columns[1].justify = "right"
    for name, count in rows:
        table.add_row(name, f"{count:,}", "[green]✓[/]" if count == ends.sent else "[red]✗[/]")
    console.print()
    console.print(table)
    if counts.quarantine:
        console.print(f"  {counts.quarantine:,} of them in the quarantine, because:")
        for reason, count in outcome.reasons:
            console.print(f"    {count:>7,}  {reason}", highlight=False)
    _show_pages(outcome.top_pages, console)
    verdict = (
        "[bold green]Every record is in the tables exactly once.[/]"
        if outcome.is_right
        else "[bold red]The counts differ.[/]"
    )
    console.print(f"\n  {verdict} The picture: [cyan]{shown(outcome.picture)}[/]", soft_wrap=True)


def _show_pages(pages: list[tuple[str, int]], console: Console) -> None:
    console.print("\n  Top pages, by views:")
    most = max((views for _, views in pages), default=1)
    for page, views in pages:
        bar = "█" * max(1, round(24 * views / most))
        console.print(f"    {views:>8,}  [blue]{bar:<24}[/]  {page}", highlight=False, no_wrap=True)


def show_next_commands(lines: list[tuple[str, str]], console: Console) -> None:
    """Print the `lines` of `commands.commands`, which use the broker and tables of the demo."""
    console.print("\n  How to continue:")
    for what, command in lines:
        if what:
            console.print(f"    [dim]# {what}[/]")
        console.print(f"    {command}", highlight=False, soft_wrap=True, markup=False)
