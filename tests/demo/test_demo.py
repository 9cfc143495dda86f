"""The whole demo on 10,000 lines of a real server's log, and its parts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from odradek.cli.demo import demo
from odradek.cli.output import CommandError
from odradek.demo import plot, run
from odradek.demo.report import Ends, Outcome
from odradek.demo.results import Counts, Traffic

ACCESS_LOG = Path(__file__).parents[1] / "data" / "access.log"
PNG = b"\x89PNG\r\n\x1a\n"
RUN_TIMEOUT_S = 900


def test_demo_on_a_real_log_counts_the_same_on_both_ends(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "odradek", "demo", "--input", str(ACCESS_LOG)]
    result = subprocess.run(
        [*command, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=os.environ | {"PATH": _path_without_odradek()},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Every record is in the tables exactly once." in result.stdout
    assert len(re.findall(r"10,000 +✓", result.stdout)) == 5, result.stdout
    assert "1 of them in the quarantine" in result.stdout
    # grep -cE '"GET /projects/xdotool/(\?[^ ]*)? HTTP/[0-9.]+" (200|304) ' says 219
    assert re.search(r" 219 +█+ +/projects/xdotool/\n", result.stdout)
    assert (out / "traffic.png").read_bytes().startswith(PNG)
    assert "odradek serve --data" in result.stdout
    read = re.search(r"^ +(\S*odradek) consume access-log", result.stdout, re.MULTILINE)
    assert read is not None, result.stdout
    assert shutil.which(read[1]) is not None  # also where the PATH has no `odradek`


def test_demo_on_three_brokers_loses_nothing_when_one_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "odradek", "demo", "--brokers", "3", "--input"]
    result = subprocess.run(
        [*command, str(ACCESS_LOG), "--rate", "2000", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 replicas each" in result.stdout
    killed = re.search(
        r"Broker (\d) \(pid \d+\) was killed with SIGKILL after (\d,\d+)", result.stdout
    )
    assert killed is not None, result.stdout
    assert 5_000 <= int(killed[2].replace(",", "")) < 10_000
    assert len(re.findall(r"10,000 +✓", result.stdout)) == 5, result.stdout
    assert "Every record is in the tables exactly once." in result.stdout
    assert "odradek cluster up --brokers 3 --data" in result.stdout


def test_a_cluster_is_either_started_or_used(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Leave one of them out"):
        demo(events=1, out=tmp_path / "out", bootstrap_server="127.0.0.1:1", brokers=3)


def _path_without_odradek() -> str:
    directories = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(one for one in directories if not (Path(one) / "odradek").exists())


RIGHT = Outcome(Ends(10, 10, 10), Counts(9, 1, 10), [], [], Path("x.png"))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RIGHT, ends=Ends(11, 10, 10)),
        replace(RIGHT, ends=Ends(10, 9, 10)),
        replace(RIGHT, ends=Ends(10, 10, 9)),
        replace(RIGHT, counts=Counts(8, 1, 9)),
        replace(RIGHT, counts=Counts(9, 1, 9)),
    ],
)
def test_any_count_that_differs_is_wrong(wrong: Outcome) -> None:
    assert RIGHT.is_right
    assert not wrong.is_right


def test_counts_that_differ_end_the_command_with_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "run_demo", lambda options, console: False)
    with pytest.raises(CommandError, match="counts differ"):
        demo(events=1, out=tmp_path)


def test_directory_with_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(CommandError, match="Choose another --out"):
        demo(events=1, out=tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("below", ["", "/a/b"])
def test_directory_that_cannot_be_created_is_one_clear_line(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CommandError, match=r"/file.*: Not a directory\. Choose another --out\.$"):
        demo(events=1, out=Path(f"{file}{below}"))


def test_missing_input_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not a file"):
        demo(input_=tmp_path / "nothing.log", out=tmp_path)


def test_broker_that_does_not_respond_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("odradek.cli.client.REQUEST_TIMEOUT_S", 0.2)
    with pytest.raises(CommandError, match=r"No broker responds at 127\.0\.0\.1:1 "):
        demo(events=1, out=tmp_path / "out", bootstrap_server="127.0.0.1:1")
    assert not (tmp_path / "out").exists()


def test_missing_java_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandError, match="Spark needs Java 17 to 23"):
        demo(events=1, out=tmp_path / "out")


@pytest.mark.parametrize("minutes", [0, 1, 150])
def test_picture_is_drawn_of_any_number_of_buckets(tmp_path: Path, minutes: int) -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=one) for one in range(minutes)]
    series = {kind: list(range(minutes)) for kind in ("2xx", "5xx")} if minutes else {}
    pages = [(f"/page/{'x' * 10 * one}", 10 - one) for one in range(min(minutes, 10))]
    plot.save_plot(Traffic(60, times, series, pages), "Requests", "a test", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)
