"""Kafka's DumpLogSegments on the broker's files, which must be on this machine (`--log-dir`).

Kafka preallocates the index files of an active segment, and its own sanity check then refuses
them. Therefore only the indexes of closed segments are checked while a broker runs. The suite
`stopped` checks all files after a clean stop.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from conformance.adapters.base import COMPRESSIONS, Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.adapters.java import TOOLS, kafka_tool
from conformance.harness import Case, Context, main
from testkit.topics import create_topic

FILES_A_RUN = 40


def dump(files: list[Path], *arguments: str) -> str:
    """Return the output of DumpLogSegments for these files."""
    output = ""
    for at in range(0, len(files), FILES_A_RUN):
        names = ",".join(str(path) for path in files[at : at + FILES_A_RUN])
        output += kafka_tool(f"{TOOLS}.DumpLogSegments", *arguments, "--files", names)
    return output


def _compressions(context: Context) -> None:
    context.need_log_dirs()
    client = ConfluentClient()
    for compression in COMPRESSIONS:
        topic = context.topic("dump")
        create_topic(context.bootstrap, topic)
        headers = (("h", b"1"),)
        sent = [Rec(b"v" * 100, f"k{n}".encode(), headers) for n in range(50)]
        client.produce(context.bootstrap, topic, sent, compression=compression, idempotent=True)
        log = context.log_dir_of(topic) / f"{topic}-0" / f"{0:020}.log"
        output = dump([log], "--deep-iteration", "--print-data-log")
        assert f"compresscodec: {compression}" in output, output[:2000]
        assert "isvalid: false" not in output, output[:2000]
        offsets = re.findall(r"^\| offset: (\d+) ", output, re.M)
        assert offsets == [str(n) for n in range(50)], offsets
        assert output.count("payload: " + "v" * 100) == 50
        producer = re.findall(r"producerId: (-?\d+) producerEpoch: (-?\d+)", output)[0]
        assert int(producer[0]) >= 0 and producer[1] == "0", producer


def _rolled(context: Context) -> None:
    context.need_log_dirs()
    topic = context.topic("rolled")
    create_topic(context.bootstrap, topic, segment_bytes="1048576", retention_ms="-1")
    client = ConfluentClient()
    for round_ in range(100):
        base = 1_700_000_000_000 + round_ * 1000
        client.produce(
            context.bootstrap,
            topic,
            [Rec(os.urandom(1000), timestamp_ms=base + n) for n in range(60)],
        )
    partition = context.log_dir_of(topic) / f"{topic}-0"
    deadline = time.monotonic() + 120
    while len(logs := sorted(partition.glob("*.log"))) < 5:
        assert time.monotonic() < deadline, [p.name for p in logs]
    assert "isvalid: false" not in dump(logs, "--deep-iteration")
    closed = [p.with_suffix(s) for p in logs[:-1] for s in (".index", ".timeindex")]
    output = dump(closed, "--index-sanity-check")
    assert output.count("passed sanity check") == len(closed), output
    dumped = dump(closed)
    for complaint in ("Mismatches in", "Found timestamp mismatch", "Found out of order"):
        assert complaint not in dumped, dumped[:2000]
    assert dumped.count("offset: ") > len(closed), "the indexes are all but empty"


CASES = (
    Case("--deep-iteration, all compressions", _compressions, ci=True),
    Case("--index-sanity-check on rolled segments", _rolled, ci=True),
)

if __name__ == "__main__":
    main("dump_log", CASES)
