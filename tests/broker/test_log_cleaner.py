"""The log cleaner of a running broker: its worker process, errors, and skipped logs."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from odradek.broker import log_cleaner
from odradek.broker.broker import BrokerServer
from odradek.config.broker import BrokerConfig
from odradek.ids import TopicPartition
from odradek.log.cleaner import process as cleaner_process
from odradek.log.cleaner import segment_swap as swap
from odradek.log.cleaner import worker
from odradek.log.cleaner.batch_filter import _seal
from odradek.log.cleaner.worker import AUTOGROUP, AUTOGROUP_NICE, NICE
from odradek.log.cleaner.worker_protocol import CleaningFailed
from odradek.log.file_pool import PooledFile
from odradek.log.old_segments import SEGMENTS_A_SLICE
from odradek.log.segments.log_segment import LogSegment
from odradek.log.truncation import truncate_to
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import parse_header
from odradek.records.record import Record, build_batch, encode_record
from odradek.slicing import ELEMENTS_PER_SLICE
from odradek.testing.state import reset
from tests.helpers.time_slices import count_slices
from tests.log.cleaner.running import append_pairs, pairs_of

TP = TopicPartition("t", 0)
TIMEOUT_S = 120
HOUR_MS = 3_600_000
COMPACT = {"cleanup.policy": "compact"}


def with_server(
    directory: Path,
    work: Callable[[BrokerServer, UnifiedLog], Coroutine[Any, Any, None]],
    topic: dict[str, str] = COMPACT,
    **properties: Any,
) -> None:
    """Run `work` with a started broker that has a compacted topic ``t``."""
    configs = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    configs["log.cleaner.backoff.ms"] = "3600000"
    configs |= {name.replace("_", "."): str(value) for name, value in properties.items()}

    async def main() -> None:
        server = BrokerServer(BrokerConfig.from_properties(configs))
        await server.start()
        try:
            if not server.services.image().topics_by_name.get("t"):
                await server.create_topic("t", 1, topic)
            log = server.services.log_manager.get(TP)
            assert log is not None
            await work(server, log)
        finally:
            await server.stop()

    asyncio.run(main())


def fill(server: BrokerServer, log: UnifiedLog, *, batches: int = 3, keys: int = 5) -> None:
    """Append dirty segments, flush them, and write the recovery points."""
    for round_ in range(batches):
        pairs = [(b"k%d" % key, b"%d" % round_) for key in range(keys)]
        append_pairs(log, pairs, timestamp_ms=server.services.clock.time_ms())
        log.roll(server.services.clock.time_ms())
    log.flush()
    server.services.log_manager.checkpoint()


async def fill_with_another(server: BrokerServer, log: UnifiedLog) -> UnifiedLog:
    """Fill `log`, and with fewer records a second log, which is returned."""
    await server.create_topic("other", 1, COMPACT)
    other = server.services.log_manager.get(TopicPartition("other", 0))
    assert other is not None
    fill(server, log, batches=9)
    fill(server, other)
    return other


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


def leftovers(directory: Path) -> list[Path]:
    return [*directory.rglob("*.swap"), *directory.rglob("*.cleaned")]


def workers() -> list[psutil.Process]:
    """Return the worker processes that have started to run Python."""
    return [child for child in children() if cleaner_process._MODULE in child.cmdline()]


async def begun_cleaning(
    server: BrokerServer, log: UnifiedLog
) -> tuple[asyncio.Task[int], psutil.Process]:
    """Start the cleaning of a dirty log. Return the cleaning and its worker."""
    fill(server, log)
    cleaning = asyncio.create_task(server.log_cleaner.clean())
    await until(workers)
    (process,) = workers()
    return cleaning, process


def autogroup(pid: int) -> tuple[str, str]:
    """Return the name and the nice value of the autogroup of a process.

    Both are empty if no process of its session has called setsid, as under the first process of a
    container.
    """
    name, _, nice = Path(f"/proc/{pid}/autogroup").read_text("ascii").strip().partition(" nice ")
    return name, nice


def children() -> list[psutil.Process]:
    """Return the child processes started since the test began. Other tests leave Spark running."""
    return [child for child in psutil.Process().children() if child.pid not in _others]


_others: set[int] = set()


@pytest.fixture(autouse=True)
def _note_other_processes() -> None:
    _others.clear()
    _others.update(child.pid for child in psutil.Process().children())


def test_many_logs_are_examined_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selection of the log to clean, and the retention, visit all logs."""
    ended = []

    async def end_slice() -> None:
        ended.append(None)
        await asyncio.sleep(0)

    async def work(server: BrokerServer, _: UnifiedLog) -> None:
        await server.create_topic("many", 2 * ELEMENTS_PER_SLICE)
        monkeypatch.setattr(log_cleaner, "end_slice", end_slice)
        assert await server.log_cleaner.clean() == 0
        assert len(ended) == 2 * 2

    with_server(tmp_path, work, log_cleaner_threads=1)


def test_a_dirty_log_is_compacted_and_the_worker_ends(tmp_path: Path, caplog) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        with caplog.at_level(logging.INFO):
            assert await server.log_cleaner.clean() == 1
        assert pairs_of(log) == [(10 + key, b"k%d" % key, b"2") for key in range(5)]
        assert server.services.log_manager.cleaned_offset(log) == 15
        assert not children()
        assert await server.log_cleaner.clean() == 0, "it is clean now"

    with_server(tmp_path, work)
    assert "compacted t-0 up to 15 (dirty from 0)" in caplog.text
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 15\n"


def test_without_a_dirty_log_there_is_no_process(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cleaner_process, "CleanerProcess", lambda: pytest.fail("a process"))

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        assert await server.log_cleaner.clean() == 0
        append_pairs(log, [(b"a", b"1")])
        assert await server.log_cleaner.clean() == 0
        fill(server, log)
        log.update_config(server.config.log_config({"cleanup.policy": "delete"}))
        assert await server.log_cleaner.clean() == 0

    with_server(tmp_path, work)


def test_the_cleaner_starts_automatically_unless_it_is_disabled(tmp_path: Path) -> None:
    async def cleaned(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        await until(lambda: server.services.log_manager.cleaned_offset(log) == 15)

    async def left(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        await asyncio.sleep(0.1)
        assert server.services.log_manager.cleaned_offset(log) is None

    with_server(tmp_path / "on", cleaned, log_cleaner_backoff_ms=1)
    with_server(tmp_path / "off", left, log_cleaner_backoff_ms=1, log_cleaner_enable="false")


def test_a_damaged_log_is_logged_once_and_the_others_are_cleaned(tmp_path: Path, caplog) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        other = await fill_with_another(server, log)
        path = tmp_path / "t-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
        await server.log_cleaner.clean()
        assert server.services.log_manager.cleaned_offset(log) is None
        assert len(log.segments) == 10
        assert len(pairs_of(other)) == 5
        assert await server.log_cleaner.clean() == 0

    with_server(tmp_path, work)
    assert not list(tmp_path.rglob("*.cleaned"))
    assert caplog.text.count("t-0 cannot be compacted") == 1
    assert "its checksum is wrong" in caplog.text


def test_a_killed_worker_loses_no_data(tmp_path: Path, caplog, monkeypatch) -> None:
    original = cleaner_process.CleanerProcess.start
    killed: list[int] = []

    def start(self: Any, job: Any) -> None:
        if not killed:
            killed.append(self.pid)
            os.kill(self.pid, signal.SIGKILL)
        original(self, job)

    monkeypatch.setattr(cleaner_process.CleanerProcess, "start", start)

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        assert await server.log_cleaner.clean() == 0
        assert len(pairs_of(log)) == 15
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(log)) == 5

    with_server(tmp_path, work)
    assert caplog.text.count("ended as it compacted t-0") == 1


def test_a_log_that_kills_its_workers_is_skipped(tmp_path: Path, caplog, monkeypatch) -> None:
    original = cleaner_process.CleanerProcess.start

    def start(self: Any, job: Any) -> None:
        if job.name == "t-0":
            os.kill(self.pid, signal.SIGKILL)
        original(self, job)

    monkeypatch.setattr(cleaner_process.CleanerProcess, "start", start)

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        other = await fill_with_another(server, log)
        for _ in range(3):
            assert await server.log_cleaner.clean() == 0
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(other)) == 5

    with_server(tmp_path, work)
    assert caplog.text.count("3 workers died while they cleaned it") == 1


def test_timestamps_beyond_64_bits_do_not_stop_the_cleaning(tmp_path: Path) -> None:
    """A client writes the body, so base timestamp and delta may add up to any number."""

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        now_ms = server.services.clock.time_ms()
        batch = build_batch([Record(b"k0", b"", now_ms)] * 2, timestamp_ms=now_ms)
        body = bytearray()
        encode_record(body, Record(b"k0", b"", now_ms), 0, 0)
        encode_record(body, Record(b"far", None, now_ms), 2**63 - 1, 1)
        log.append_as_leader(_seal(parse_header(batch), bytes(body)), 0, now_ms=now_ms)
        fill(server, log)
        assert await server.log_cleaner.clean() == 1
        assert [key for _, key, _ in pairs_of(log)] == [b"far", *(b"k%d" % n for n in range(5))]

    with_server(tmp_path, work)


@pytest.mark.parametrize("method", ["open", "keep"])
def test_a_swap_without_a_descriptor_is_postponed(
    tmp_path: Path, caplog, monkeypatch, method: str
) -> None:
    """Clients that use all descriptors must not cause the log directory to go offline."""
    step = {"open": (swap, "prepare_swap"), "keep": (PooledFile, "keep")}[method]

    def fail(*_: Any) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        with monkeypatch.context() as patched:
            patched.setattr(*step, fail)
            assert await server.log_cleaner.clean() == 0
        assert not log.log_dir.offline
        assert len(pairs_of(log)) == 15
        assert not leftovers(tmp_path)
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(log)) == 5

    with_server(tmp_path, work)
    assert caplog.text.count("is postponed") == 1


def test_a_log_that_does_not_fit_on_the_disk_does_not_delay_others(
    tmp_path: Path, monkeypatch
) -> None:
    started: list[str] = []
    start, report = cleaner_process.CleanerProcess.start, cleaner_process.CleanerProcess.report

    def start_unless_full(self: Any, job: Any) -> None:
        started.append(job.name)
        if job.name != "t-0":
            start(self, job)

    def report_full(self: Any) -> Any:
        full = started[-1] == "t-0"
        return CleaningFailed(errno.ENOSPC, "no space left") if full else report(self)

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        other = await fill_with_another(server, log)
        with monkeypatch.context() as patched:
            patched.setattr(cleaner_process.CleanerProcess, "start", start_unless_full)
            patched.setattr(cleaner_process.CleanerProcess, "report", report_full)
            assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(other)) == 5
        assert len(pairs_of(log)) == 45
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(log)) == 5

    with_server(tmp_path, work)


def test_a_checkpoint_without_space_is_postponed(tmp_path: Path, caplog, monkeypatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        with monkeypatch.context() as patched:
            patched.setattr(server.services.log_manager, "write_cleaned_offset", fail)
            assert await server.log_cleaner.clean() == 0
        assert not log.log_dir.offline
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(log)) == 5

    with_server(tmp_path, work)
    assert caplog.text.count("checkpoint is postponed") == 1


def test_deleting_a_topic_ends_its_cleaning(tmp_path: Path, monkeypatch) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        with monkeypatch.context() as patched:  # a worker without a job never finishes it
            patched.setattr(cleaner_process.CleanerProcess, "start", lambda self, job: None)
            cleaning = asyncio.create_task(server.log_cleaner.clean())
            await until(workers)
            await reset(server)
            assert await asyncio.wait_for(cleaning, TIMEOUT_S) == 0
        await server.create_topic("t", 1, COMPACT)
        log = server.services.log_manager.get(TP)  # type: ignore[assignment]
        fill(server, log, batches=2, keys=2)
        assert await server.log_cleaner.clean() == 1
        assert pairs_of(log) == [(2, b"k0", b"1"), (3, b"k1", b"1")]

    with_server(tmp_path, work)


def test_the_broker_stops_during_a_throttled_cleaning(tmp_path: Path) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        cleaning, _ = await begun_cleaning(server, log)
        await asyncio.wait_for(server.stop(), TIMEOUT_S)
        assert await cleaning == 0
        assert not children()

    with_server(tmp_path, work, log_cleaner_io_max_bytes_per_second=1)


def test_the_worker_has_none_of_the_brokers_sockets_and_dies_with_its_pipe(tmp_path: Path) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        cleaning, process = await begun_cleaning(server, log)
        await until(
            lambda: process.nice() == min(os.nice(0) + NICE, 19)
        )  # the system's maximum is 19
        assert not process.net_connections()
        assert server.bootstrap_servers
        await server.stop()
        assert await cleaning == 0

    with_server(tmp_path, work, log_cleaner_io_max_bytes_per_second=1)
    process = cleaner_process.CleanerProcess()
    assert process._process.stdin is not None
    process._process.stdin.close()
    assert process._process.wait(TIMEOUT_S) == 0
    process.close()


@pytest.mark.skipif(not Path(AUTOGROUP).exists(), reason="the system has no groups by session")
def test_the_autogroup_of_the_workers_session_has_the_nice_value(tmp_path: Path) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        cleaning, process = await begun_cleaning(server, log)
        await until(lambda: len(process.threads()) > 1)  # it has started to listen
        own, nice = autogroup(process.pid)
        assert nice == str(AUTOGROUP_NICE)
        assert own != autogroup(os.getpid())[0]
        await server.stop()
        assert await cleaning == 0

    with_server(tmp_path, work, log_cleaner_io_max_bytes_per_second=1)


def test_lowering_the_priority_in_another_session_leaves_its_autogroup_unchanged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = tmp_path / "autogroup"
    group.write_text("untouched", encoding="ascii")
    monkeypatch.setattr(worker, "AUTOGROUP", str(group))
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid() + 1)
    worker.lower_priority()
    assert group.read_text(encoding="ascii") == "untouched"
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    worker.lower_priority()
    assert group.read_text(encoding="ascii").startswith(str(AUTOGROUP_NICE))


def test_without_autogroups_only_the_nice_value_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    increments: list[int] = []
    monkeypatch.setattr(os, "nice", increments.append)
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    monkeypatch.setattr(worker, "AUTOGROUP", str(tmp_path / "none"))
    worker.lower_priority()
    assert increments == [NICE]
    assert not (tmp_path / "none").exists()


def test_a_region_of_a_replaced_segment_stays_readable(tmp_path: Path) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        region = log.read(0, 1 << 20, log.log_end_offset, True).region
        assert region is not None
        before = region.read()
        old = log.segments[0]
        await server.log_cleaner.clean()
        assert region.read() == before
        assert old.read_batch(0, old.size) == before, "a lookup that holds the old segment"
        region.close()

    with_server(tmp_path, work)


def test_compact_and_delete_also_deletes_expired_segments(tmp_path: Path) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        old_ms = server.services.clock.time_ms() - 2 * HOUR_MS
        append_pairs(log, [(b"old", b"1")], timestamp_ms=old_ms)
        log.roll(old_ms)
        append_pairs(log, [(b"new", b"1")], timestamp_ms=old_ms + 2 * HOUR_MS)
        await server.log_cleaner.clean()
        assert log.log_start_offset == 1

    topic = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}
    with_server(tmp_path, work, topic)


def test_topic_that_is_deleted_during_its_retention_leaves_the_directory_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have other names afterwards. An error of a rename would be an error of the disk."""

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        old_ms = server.services.clock.time_ms() - 2 * HOUR_MS
        append_pairs(log, [(b"old", b"1")], timestamp_ms=old_ms)
        log.roll(old_ms)
        append_pairs(log, [(b"old", b"2")], timestamp_ms=old_ms)
        in_thread = log_cleaner.LogCleaner._in_thread

        async def deleted_in_the_meantime(*args: Any) -> Any:
            found = await in_thread(*args)
            if args[1].func == log.load_for_retention:
                server.services.log_manager.delete(TP)
            return found

        monkeypatch.setattr(log_cleaner.LogCleaner, "_in_thread", deleted_in_the_meantime)
        await server.log_cleaner.clean()
        assert log.closed
        assert not log.log_dir.offline

    topic = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}
    with_server(tmp_path, work, topic)


def test_swap_does_not_bring_back_records_that_were_truncated_during_the_cleaning(
    tmp_path: Path, monkeypatch
) -> None:
    """The log has segments with the same base offsets again, but with other records."""

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        report = log_cleaner.LogCleaner._report

        async def report_after_truncation(*args: Any) -> Any:
            found = await report(*args)
            if not log.truncations:
                truncate_to(log, 5)
                for _ in range(2):
                    append_pairs(log, [(b"new%d" % key, b"new") for key in range(5)])
                    log.roll(server.services.clock.time_ms())
            return found

        monkeypatch.setattr(log_cleaner.LogCleaner, "_report", report_after_truncation)
        assert await server.log_cleaner.clean() == 0
        assert log.segments.bases == [0, 5, 10, 15]
        keys = [b"k%d" % key for key in range(5)] + [b"new%d" % key for key in range(5)] * 2
        assert [key for _, key, _ in pairs_of(log)] == keys
        assert server.services.log_manager.cleaned_offset(log) is None
        assert not leftovers(tmp_path)

    with_server(tmp_path, work)


@pytest.mark.parametrize("code", [0, errno.ENOENT, errno.EIO])
def test_log_that_is_truncated_while_a_worker_reads_it_is_cleaned_in_the_next_pass(
    tmp_path: Path, monkeypatch, caplog, code: int
) -> None:
    """The worker finds a missing file, or the end of a batch that was cut."""

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)

        async def fail_after_truncation(*_: Any) -> CleaningFailed:
            truncate_to(log, 5)
            return CleaningFailed(code, "a file is missing or cut")

        with monkeypatch.context() as patched:
            patched.setattr(log_cleaner.LogCleaner, "_report", fail_after_truncation)
            assert await server.log_cleaner.clean() == 0
        assert not log.log_dir.offline
        fill(server, log)
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(log)) == 5

    with_server(tmp_path, work)
    assert "cannot be compacted" not in caplog.text


def test_swap_does_not_retire_records_that_follow_a_truncation_during_its_sync(
    tmp_path: Path, monkeypatch
) -> None:
    """The truncation leaves the replaced segments in place, and the last one is appended to."""

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        gapped = [segment for segment in log.segments if segment.base_offset != 10]
        log.segments._set(gapped)
        prepare = swap.prepare_swap

        def prepare_and_truncate(of: UnifiedLog, old: list[LogSegment]) -> None:
            prepare(of, old)
            if not log.truncations:
                truncate_to(log, 12)
                append_pairs(log, [(b"new", b"new")])
                log.roll(server.services.clock.time_ms())
                append_pairs(log, [(b"last", b"new")])

        monkeypatch.setattr(swap, "prepare_swap", prepare_and_truncate)
        await server.log_cleaner.clean()
        assert log.truncations, "a swap was prepared"
        assert [key for _, key, _ in pairs_of(log)][-2:] == [b"new", b"last"]
        assert not log.log_dir.offline
        assert not leftovers(tmp_path)

    with_server(tmp_path, work)


def test_swap_whose_segments_a_truncation_renames_leaves_the_directory_online(
    tmp_path: Path, monkeypatch
) -> None:
    """The cleaner's thread opens the old segments while another thread truncates the log."""

    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        fill(server, log)
        prepare = swap.prepare_swap

        def truncate_and_prepare(of: UnifiedLog, old: list[LogSegment]) -> None:
            truncate_to(of, 3)
            prepare(of, old)

        with monkeypatch.context() as patched:
            patched.setattr(swap, "prepare_swap", truncate_and_prepare)
            assert await server.log_cleaner.clean() == 0
        assert log.truncations, "a swap was prepared"
        assert not log.log_dir.offline
        assert not leftovers(tmp_path)
        fill(server, log)
        assert await server.log_cleaner.clean() == 1
        assert len(pairs_of(log)) == 5

    with_server(tmp_path, work)


def test_retention_of_a_compacted_log_runs_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(server: BrokerServer, log: UnifiedLog) -> None:
        now_ms = server.services.clock.time_ms()
        for _ in range(3 * SEGMENTS_A_SLICE):
            append_pairs(log, [(b"k", b"v")], timestamp_ms=now_ms - 2 * HOUR_MS)
            log.roll(now_ms)
        ended = count_slices(monkeypatch)
        await server.log_cleaner.clean()
        assert log.log_start_offset == log.log_end_offset
        assert len(ended) == 3

    topic = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}
    with_server(tmp_path, work, topic)


@pytest.mark.parametrize("remove", ["retention", "truncation"])
def test_segments_removed_during_an_examination_leave_the_directory_online(
    tmp_path: Path, monkeypatch, remove: str
) -> None:
    """The cleaner's thread has the list of segments, and the first batches are on the disk only."""

    async def work(server: BrokerServer, _: UnifiedLog) -> None:
        log = server.services.log_manager.get(TP)
        assert log is not None
        now_ms = server.services.clock.time_ms()
        first_timestamp, removed = LogSegment.load_first_timestamp, []

        def remove_and_load(segment: LogSegment, *, wait: bool = True) -> None:
            if wait and not removed:
                removed.append(segment)
                if remove == "retention":
                    assert log.delete_old_segments(now_ms).deleted >= 2
                else:
                    truncate_to(log, 0)
            first_timestamp(segment, wait=wait)

        monkeypatch.setattr(LogSegment, "load_first_timestamp", remove_and_load)
        await server.log_cleaner.clean()
        assert removed, "the log was examined"
        assert not log.log_dir.offline

    async def fill_expired(server: BrokerServer, log: UnifiedLog) -> None:
        old_ms = server.services.clock.time_ms() - 2 * HOUR_MS
        for _ in range(4):
            append_pairs(log, [(b"k", b"v")], timestamp_ms=old_ms)
            log.roll(old_ms)
        log.flush()
        server.services.log_manager.checkpoint()

    topic = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}
    topic["max.compaction.lag.ms"] = str(HOUR_MS)
    with_server(tmp_path, fill_expired, topic)
    with_server(tmp_path, work, topic)
