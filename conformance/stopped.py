"""Kafka's DumpLogSegments on the files of a broker after a clean stop.

`python -m conformance.stopped --bootstrap-server - --log-dir DIR`: no broker may use DIR.
"""

from __future__ import annotations

from pathlib import Path

from conformance.dump_log import dump
from conformance.harness import Case, Context, Skip, main

LARGEST_BYTES = 64 << 20


def _files(context: Context, suffix: str) -> list[Path]:
    """Return the files of client topics, without empty files and deleted topics."""
    found = sorted(
        path
        for directory in context.need_log_dirs()
        for path in directory.glob(f"*-*/*{suffix}")
        if not path.parent.name.startswith("__")
        and not path.parent.name.endswith("-delete")
        and 0 < path.stat().st_size <= LARGEST_BYTES
    )
    if not found:
        raise Skip(f"no {suffix} files in {context.log_dirs}")
    return found


def _logs(context: Context) -> None:
    output = dump(_files(context, ".log"), "--deep-iteration")
    assert "isvalid: true" in output and "isvalid: false" not in output


def _indexes(context: Context) -> None:
    files = [
        p
        for p in _files(context, ".index") + _files(context, ".timeindex")
        if p.with_suffix(".log").stat().st_size > 0
    ]
    output = dump(files, "--index-sanity-check")
    assert output.count("passed sanity check") == len(files), output[-2000:]
    compared = dump(files, "--max-message-size", str(LARGEST_BYTES))
    for complaint in ("Mismatches in", "Found timestamp mismatch", "Found out of order"):
        assert complaint not in compared, compared[:2000]


def _offsets(context: Context) -> None:
    files = [
        path
        for directory in context.need_log_dirs()
        for path in directory.glob("__consumer_offsets-*/*.log")
        if path.stat().st_size > 0
    ]
    if not files:
        raise Skip(f"no group has committed in {context.log_dirs}")
    output = dump(files, "--offsets-decoder", "--deep-iteration")
    assert "isvalid: false" not in output and "Unknown" not in output, output[:2000]
    assert '"offset":' in output and '"protocolType":"consumer"' in output, output[:2000]


def _producer_snapshots(context: Context) -> None:
    output = dump(_files(context, ".snapshot"))
    assert "producerId:" in output, output[:2000]


CASES = (
    Case("every log: --deep-iteration", _logs, ci=True, timeout_s=900),
    Case(
        "every index: --index-sanity-check, and against the log", _indexes, ci=True, timeout_s=900
    ),
    Case("__consumer_offsets: --offsets-decoder", _offsets, ci=True),
    Case("producer snapshots", _producer_snapshots, ci=True),
)

if __name__ == "__main__":
    main("stopped", CASES)
