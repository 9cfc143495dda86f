"""The result of compacting a scripted history, batch by batch, as DumpLogSegments prints it.

The expected lines are the result of Apache Kafka's own cleaner for the same history. Needs
`--log-dir`. Segments roll by the records' timestamps (`segment.ms`), so both brokers roll the log
at the same offsets. A pass is over when ``cleaner-offset-checkpoint`` has the expected offset.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import confluent_kafka

from conformance.adapters.base import COMPRESSIONS
from conformance.dump_log import dump
from conformance.harness import Case, Context, main
from testkit.topics import create_topic

SEGMENT_MS = 1_000
RETENTION_MS = 1_500
PASS_TIMEOUT_S = 90.0
END_TIMEOUT_S = 30.0
FILLING = "." * 100
"""Appended to each value, so that a batch is worth compressing."""
Pair = tuple[str, str | None]

_BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<seq>-?\d+) lastSequence: -?\d+ producerId: (?P<pid>-?\d+) .*"
    r"isTransactional: (?P<txn>\w+) isControl: (?P<control>\w+) "
    r"deleteHorizonMs: (?P<horizon>\S+) .*compresscodec: (?P<codec>\w+) "
)
_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) .*?(?: key: (?P<key>\S+))?(?: payload: (?P<value>\S+))?$"
)


class History:
    """The writes to one topic.

    Each batch is more than `SEGMENT_MS` later than the batch before, so it begins a new segment.
    """

    def __init__(self, context: Context, compression: str = "none") -> None:
        self.context = context
        context.need_log_dirs()
        self.topic = context.topic("compaction")
        self.now_ms = time.time_ns() // 1_000_000 + 60_000  # markers have the present time: no roll
        self.compression = compression
        create_topic(
            context.bootstrap,
            self.topic,
            cleanup_policy="compact",
            segment_ms=str(SEGMENT_MS),
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms=str(RETENTION_MS),
        )
        # Segments of a follower may begin at other offsets: it appends runs of batches.
        self.directory = context.log_dir_of(self.topic)
        self.plain = self.producer(**{"enable.idempotence": False})

    def producer(self, **options: object) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self.context.bootstrap,
                "compression.type": self.compression,
                "linger.ms": 10_000,  # one batch a flush, also on a machine that stands still
                "log_level": 3,
                **options,
            }
        )

    def write(self, *pairs: Pair, by: confluent_kafka.Producer | None = None) -> None:
        """Write one batch."""
        self.now_ms += 10 * SEGMENT_MS
        producer = by or self.plain
        for key, value in pairs:
            producer.produce(
                self.topic,
                value and value + FILLING,
                key,
                partition=0,
                timestamp=self.now_ms,
                on_delivery=_delivered,
            )
        assert producer.flush(30) == 0

    def wait_for_end(self, offset: int) -> None:
        """Wait until the log ends at `offset`, for example after the marker of a transaction.

        A coordinator answers EndTxn before the markers are written.
        """
        options = {"bootstrap.servers": self.context.bootstrap, "group.id": self.topic}
        consumer = confluent_kafka.Consumer({**options, "log_level": 3})
        partition = confluent_kafka.TopicPartition(self.topic, 0)
        deadline = time.monotonic() + END_TIMEOUT_S
        while (end := consumer.get_watermark_offsets(partition, 30)[1]) < offset:
            assert time.monotonic() < deadline, f"the log ends at {end} instead of {offset}"
            time.sleep(0.05)
        consumer.close()

    def wait(self, offset: int) -> None:
        """Wait until a pass has cleaned everything below `offset`."""
        checkpoint = self.directory / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + PASS_TIMEOUT_S
        expected = re.compile(rf"^{re.escape(self.topic)} 0 (\d+)$", re.M)
        while True:
            found = expected.search(checkpoint.read_text("utf-8")) if checkpoint.exists() else None
            if found is not None and int(found[1]) >= offset:
                return
            assert time.monotonic() < deadline, f"not clean up to {offset}: {found and found[1]}"
            time.sleep(0.2)

    def left(self) -> list[str]:
        """Return one line for each batch of the log, with its records at the end of the line."""
        logs = [path for path in self.logs() if path.stat().st_size]
        output = dump(logs, "--deep-iteration", "--print-data-log")
        assert "isvalid: false" not in output, output[-2000:]
        return _lines(output)

    def logs(self) -> list[Path]:
        return sorted((self.directory / f"{self.topic}-0").glob("*.log"))


def _delivered(error: object, _message: object) -> None:
    assert error is None, error


def _lines(output: str) -> list[str]:
    lines: list[str] = []
    for line in output.splitlines():
        batch, record = _BATCH.search(line), _RECORD.search(line)
        if batch is not None:
            flags = [name for name in ("txn", "control") if batch[name] == "true"]
            flags += ["horizon"] if batch["horizon"] != "OptionalLong.empty" else []
            seq = f" seq {batch['seq']}" if int(batch["pid"]) >= 0 else ""
            words = [f"{batch['base']}-{batch['last']} x{batch['count']}{seq}", batch["codec"]]
            lines.append(" ".join([*words, *flags]) + ":")
        elif record is not None and lines:
            value = (record["value"] or "-").removesuffix(FILLING)
            lines[-1] += f" {record['offset']}={record['key']}:{value}"
    return lines


def _expect(history: History, *expected: str, horizons: bool = True) -> None:
    """Compare the log with the expected lines.

    `horizons` False leaves out delete horizons, because a set horizon depends on when the passes
    ran.
    """
    left = [line if horizons else line.replace(" horizon:", ":") for line in history.left()]
    assert left == list(expected), "\n".join(["left:", *left])


def _values(context: Context) -> None:
    for codec in COMPRESSIONS:
        history = History(context, codec)
        history.write(("a", "1"), ("b", "1"), ("c", "1"))
        history.write(("b", "2"), ("d", "1"))
        history.write(("c", None), ("e", "1"))
        history.write(("z", "active"))
        history.wait(7)
        kept = (f"0-2 x1 {codec}: 0=a:1", f"3-4 x2 {codec}: 3=b:2 4=d:1")
        tombstone = f"5-6 x2 {codec} horizon: 5=c:- 6=e:1"
        _expect(history, *kept, tombstone, f"7-7 x1 {codec}: 7=z:active")
        time.sleep(RETENTION_MS / 1000)
        history.write(("e", "2"))
        history.write(("z", "active"))
        history.wait(9)
        last = (f"{at}-{at} x1 {codec}: {at}={what}" for at, what in enumerate(AFTERWARDS, 7))
        _expect(history, *kept, *last)


AFTERWARDS = ("z:active", "e:2", "z:active")


def _producers(context: Context) -> None:
    history = History(context)
    one = history.producer(**{"enable.idempotence": True})
    for value in ("1", "2", "3"):
        history.write(("a", value), by=one)
    history.write(("a", "4"))
    history.write(("z", "active"))
    history.wait(4)
    _expect(history, "2-2 x0 seq 2 none:", "3-3 x1 none: 3=a:4", "4-4 x1 none: 4=z:active")


def _transactions(context: Context) -> None:
    history = History(context)
    one = history.producer(**{"transactional.id": history.topic})
    one.init_transactions(30)
    for value, end, marker in (("1", one.commit_transaction, 2), ("2", one.abort_transaction, 5)):
        one.begin_transaction()
        history.write(("a", value), (f"only{value}", value), by=one)
        end(30)
        history.wait_for_end(marker + 1)
    one.begin_transaction()
    history.write(("b", "1"), by=one)
    one.commit_transaction(30)
    history.wait_for_end(8)
    history.write(("b", "2"))
    history.write(("z", "active"))
    history.wait(9)
    committed = "0-1 x2 seq 0 none txn: 0=a:1 1=only1:1"
    markers = {at: f"{at}-{at} x1 seq -1 none txn control: {at}=None:-" for at in (2, 5, 7)}
    emptied, newest = "6-6 x0 seq 4 none txn:", "8-8 x1 none: 8=b:2"
    before, behind = (committed, markers[2]), (emptied, markers[7], newest)
    active = [_plain(9, "z:active")]
    _expect(history, *before, markers[5], *behind, *active, horizons=False)
    history.write(("y", "1"))
    history.write(("z", "active"))
    history.wait(11)
    idle = markers[5].replace("control:", "control horizon:")
    active = [_plain(9, "z:active"), _plain(10, "y:1"), _plain(11, "z:active")]
    _expect(history, *before, idle, *behind, *active)
    time.sleep(2 * RETENTION_MS / 1000)
    history.write(("y", "1"))
    history.write(("z", "active"))
    history.wait(13)
    active = [_plain(11, "z:active"), _plain(12, "y:1"), _plain(13, "z:active")]
    _expect(history, *before, *behind, *active)


def _plain(offset: int, what: str) -> str:
    return f"{offset}-{offset} x1 none: {offset}={what}"


CASES = (
    Case("values and tombstones, all compressions", _values, timeout_s=600),
    Case("each producer's last batch", _producers),
    Case("transactions", _transactions, timeout_s=300),
)

if __name__ == "__main__":
    main("compaction", CASES)
