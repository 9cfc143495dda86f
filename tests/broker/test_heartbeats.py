"""Reports to the controller: controlled shutdown, and log directories that have failed."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.broker import BrokerServer
from odradek.broker.heartbeats import (
    ASSIGNMENTS_MAX,
    BrokerHeartbeats,
    HeartbeatSettings,
    Reports,
    Sender,
)
from odradek.broker.replica_directories import ReplicaDirectories, Storage, replica_report
from odradek.config.broker import BrokerConfig
from odradek.controller.cluster_controller import ClusterController, HeartbeatResult
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import LOST_DIRECTORY, ZERO_UUID, BrokerId, Uuid
from odradek.log.log_dir import LogDir
from odradek.metadata.image import NO_LEADER, BrokerRegistration, PartitionImage
from odradek.protocol.codec import Message
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
)
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.results import Result
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster
from tests.helpers.virtual_loop import run_virtually

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
TOPIC = Uuid(b"t" * 16)
SENDER = Sender(BrokerId(7), 70)
IDS = (1, 2, 3)

# --- the decisions ---


def replicas_of(request: Message) -> dict[tuple[Uuid, int], Uuid]:
    assert isinstance(request, AssignReplicasToDirsRequest)
    return {
        (topic.topic_id, partition.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def test_replicas_are_reported_before_the_failure_of_their_directory() -> None:
    reports = Reports()
    assert reports.is_complete
    reports.failed_directories[A] = None
    reports.replicas[TOPIC, 3] = A
    first = reports.next_request(SENDER, 5)
    assert isinstance(first, AssignReplicasToDirsRequest)
    assert (first.broker_id, first.broker_epoch) == (7, 70)
    assert replicas_of(first) == {(TOPIC, 3): A}
    reports.assigned(first)
    second = reports.next_request(SENDER, 5)
    assert second == BrokerHeartbeatRequest(7, 70, 5, offline_log_dirs=[A])
    reports.beaten(second, BrokerHeartbeatResponse())
    assert reports.is_complete


def test_report_that_changes_while_it_is_sent_is_sent_again() -> None:
    reports = Reports()
    reports.replicas[TOPIC, 3] = A
    request = reports.next_request(SENDER, 5)
    reports.replicas[TOPIC, 3] = B
    assert isinstance(request, AssignReplicasToDirsRequest)
    reports.assigned(request)
    assert replicas_of(reports.next_request(SENDER, 5)) == {(TOPIC, 3): B}


def test_directory_that_fails_during_a_heartbeat_is_reported_by_the_next_one() -> None:
    reports = Reports()
    reports.failed_directories[A] = None
    request = reports.next_request(SENDER, 5)
    reports.failed_directories[B] = None
    assert isinstance(request, BrokerHeartbeatRequest)
    reports.beaten(request, BrokerHeartbeatResponse())
    assert not reports.is_complete
    again = reports.next_request(SENDER, 5)
    assert isinstance(again, BrokerHeartbeatRequest)
    assert again.offline_log_dirs == [A, B]


def test_failure_of_the_last_directory_is_reported_before_replicas() -> None:
    reports = Reports(has_no_directory=True)
    reports.replicas[TOPIC, 3] = A
    reports.failed_directories[A] = None
    first = reports.next_request(SENDER, 5)
    assert first == BrokerHeartbeatRequest(7, 70, 5, offline_log_dirs=[A])
    reports.beaten(first, BrokerHeartbeatResponse())
    assert reports.has_reported_failures and not reports.is_complete
    assert isinstance(reports.next_request(SENDER, 5), AssignReplicasToDirsRequest)


def test_shutdown_is_requested_until_it_is_permitted() -> None:
    reports = Reports(wants_shutdown=True)
    for should_shut_down in (False, True):
        assert not reports.is_complete
        request = reports.next_request(SENDER, 5)
        assert isinstance(request, BrokerHeartbeatRequest)
        assert request.want_shut_down
        reports.beaten(request, BrokerHeartbeatResponse(should_shut_down=should_shut_down))
    assert reports.is_complete and reports.may_shut_down


def test_permission_of_a_request_without_the_wish_does_not_count() -> None:
    reports = Reports(wants_shutdown=True)
    earlier = BrokerHeartbeatRequest(7, 70, 5)
    reports.beaten(earlier, BrokerHeartbeatResponse(should_shut_down=True))
    assert not reports.may_shut_down


@given(st.dictionaries(st.tuples(st.just(TOPIC), st.integers(0, 9)), st.sampled_from([A, B])))
def test_all_replicas_are_reported_once(replicas: dict[tuple[Uuid, int], Uuid]) -> None:
    reports = Reports(replicas=dict(replicas))
    reported: dict[tuple[Uuid, int], Uuid] = {}
    while reports.replicas:
        request = reports.next_request(SENDER, 5)
        assert isinstance(request, AssignReplicasToDirsRequest)
        reports.assigned(request)
        reported |= replicas_of(request)
    assert reported == replicas


def test_a_request_has_a_limited_number_of_replicas() -> None:
    reports = Reports(replicas={(TOPIC, number): A for number in range(ASSIGNMENTS_MAX + 1)})
    sizes = []
    while reports.replicas:
        request = reports.next_request(SENDER, 5)
        assert isinstance(request, AssignReplicasToDirsRequest)
        sizes.append(len(replicas_of(request)))
        reports.assigned(request)
    assert sizes == [ASSIGNMENTS_MAX, 1]


def image(
    directory: Uuid = ZERO_UUID, isr: tuple[int, ...] = (7, 8), leader: int = NO_LEADER
) -> PartitionImage:
    replicas = (BrokerId(8), BrokerId(7))
    directories = (B, directory) if directory != ZERO_UUID else ()
    members = tuple(BrokerId(each) for each in isr)
    return PartitionImage(0, BrokerId(leader), 1, 1, replicas, members, directories=directories)


@pytest.mark.parametrize(
    ("partition", "directory", "storage", "report"),
    [
        (image(), A, Storage.WRITABLE, None),
        (image(A), A, Storage.WRITABLE, None),
        (image(B), A, Storage.WRITABLE, A),
        (image(LOST_DIRECTORY), A, Storage.WRITABLE, A),
        (image(A), None, Storage.WRITABLE, None),
        (image(), A, Storage.OFFLINE, A),
        (image(A), A, Storage.OFFLINE, None),
        (image(), None, Storage.OFFLINE, LOST_DIRECTORY),
        (image(isr=(7,)), None, Storage.OFFLINE, None),
        (image(A), None, Storage.OFFLINE, None),
        (image(leader=7), A, Storage.FULL, LOST_DIRECTORY),
        (image(A, leader=7), A, Storage.FULL, LOST_DIRECTORY),
        (image(LOST_DIRECTORY, leader=7), A, Storage.FULL, None),
        (image(leader=7, isr=(7,)), A, Storage.FULL, None),
        (image(leader=8), A, Storage.FULL, None),
    ],
)
def test_replica_is_reported_when_the_controller_must_know_its_directory(
    partition: PartitionImage, directory: Uuid | None, storage: Storage, report: Uuid | None
) -> None:
    assert replica_report(partition, BrokerId(7), directory, storage) == report


@pytest.mark.parametrize(
    ("partition", "directory", "storage", "report"),
    [
        (image(), A, Storage.WRITABLE, A),
        (image(), None, Storage.WRITABLE, None),
        (image(A), A, Storage.WRITABLE, None),
        (image(leader=8), A, Storage.FULL, None),
    ],
)
def test_broker_with_several_directories_reports_each_replica(
    partition: PartitionImage, directory: Uuid | None, storage: Storage, report: Uuid | None
) -> None:
    found = replica_report(partition, BrokerId(7), directory, storage, reports_all=True)
    assert found == report


# --- the requests ---


class Channel:
    """Returns the responses in their order, and records the requests."""

    def __init__(self, *responses: Message | Exception) -> None:
        self.requests: list[Any] = []
        self.responses = list(responses)
        self.is_closed = False
        self.disconnected = 0

    def disconnect(self) -> None:
        self.disconnected += 1

    def send(self, request: Message, response: type[Message], **_: object) -> Result[Message]:
        self.requests.append(request)
        found = self.responses.pop(0)
        return Result.failed(found) if isinstance(found, Exception) else Result(found)

    def close(self) -> None:
        self.is_closed = True


def heartbeats(channel: Channel, epochs: list[int] | None = None) -> BrokerHeartbeats:
    rest = epochs or [70]
    return BrokerHeartbeats(
        channel,  # type: ignore[arg-type]
        broker_id=BrokerId(7),
        broker_epoch=lambda: rest.pop(0) if len(rest) > 1 else rest[0],
        metadata_offset=lambda: 5,
        timers=LoopTimers(),
        settings=HeartbeatSettings(),
    )


PERMISSION = BrokerHeartbeatResponse(should_shut_down=True)


def test_failures_and_refusals_are_repeated_with_the_newest_epoch() -> None:
    async def test() -> None:
        stale = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        unknown = BrokerHeartbeatResponse(error_code=12_345)
        channel = Channel(TimeoutError(), stale, unknown, BrokerHeartbeatResponse(), PERMISSION)
        sender = heartbeats(channel, [-1, 70, 71, 72])
        assert await sender.shut_down(60_000)
        assert [each.broker_epoch for each in channel.requests] == [70, 71, 72, 72, 72]
        assert channel.disconnected == 1
        await sender.stop()
        assert channel.is_closed

    run_virtually(test())


def test_report_with_an_unexpected_error_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        channel = Channel(ValueError("a defect"), PERMISSION)
        sender = heartbeats(channel)
        assert await sender.shut_down(60_000)
        assert "a defect" in caplog.text
        await sender.stop()

    run_virtually(test())


def test_shutdown_without_permission_ends_at_its_timeout() -> None:
    async def test() -> None:
        channel = Channel(*[BrokerHeartbeatResponse()] * 100)
        sender = heartbeats(channel)
        assert not await sender.shut_down(1_000)
        await sender.stop()

    run_virtually(test())


@pytest.mark.parametrize("response", [BrokerHeartbeatResponse(), ConnectionError("refused")])
def test_delays_of_repeated_requests_double_up_to_a_second(response: Message | Exception) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        sent_at: list[float] = []

        class TimedChannel(Channel):
            def send(self, *arguments: Any, **options: object) -> Result[Message]:
                sent_at.append(loop.time())
                return super().send(*arguments, **options)

        channel = TimedChannel(*[response] * 8, PERMISSION)
        sender = heartbeats(channel)
        assert await sender.shut_down(60_000)
        assert not channel.disconnected, "only a connection that does not respond may be dead"
        await sender.stop()
        delays_ms = [round(1000 * (b - a)) for a, b in itertools.pairwise(sent_at)]
        assert delays_ms == [50, 100, 200, 400, 800, 1000, 1000, 1000]

    run_virtually(test())


def test_delays_begin_again_after_a_request_that_succeeded() -> None:
    async def test() -> None:
        refused = AssignReplicasToDirsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        stale = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        loop = asyncio.get_running_loop()
        channel = Channel(
            *[refused] * 3, AssignReplicasToDirsResponse(), stale, BrokerHeartbeatResponse()
        )
        sender = heartbeats(channel)
        sender.report_replicas({(TOPIC, 0): A})
        sender.directory_failed(A)
        began = loop.time()
        while channel.responses:  # noqa: ASYNC110 - the channel has no events
            await asyncio.sleep(0.01)
        assert round(1000 * (loop.time() - began), -1) == 50 + 100 + 200 + 50
        await sender.stop()

    run_virtually(test())


def test_reports_of_a_failed_directory_do_not_wait_for_each_other() -> None:
    async def test() -> None:
        channel = Channel(AssignReplicasToDirsResponse(), BrokerHeartbeatResponse())
        sender = heartbeats(channel)
        sender.report_replicas({(TOPIC, 0): A})
        sender.directory_failed(A)
        await asyncio.sleep(0)
        assert [type(each) for each in channel.requests] == [
            AssignReplicasToDirsRequest,
            BrokerHeartbeatRequest,
        ]
        await sender.stop()

    run_virtually(test())


def test_report_of_the_last_failure_is_repeated_until_the_controller_has_recorded_it() -> None:
    async def test() -> None:
        channel = Channel(ConnectionError("refused"), BrokerHeartbeatResponse())
        sender = heartbeats(channel, [-1, 70])
        await sender.report_last_failure([A, B])
        assert [each.offline_log_dirs for each in channel.requests] == [[A, B]] * 2
        await sender.report_last_failure([A, B])  # recorded already
        await sender.stop()

    run_virtually(test())


def test_report_of_the_last_failure_waits_for_the_controller_without_a_limit() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        sender = heartbeats(Channel(*[ConnectionError("refused")] * 100, BrokerHeartbeatResponse()))
        began = loop.time()
        await sender.report_last_failure([A])
        assert loop.time() - began > 60
        await sender.stop()

    run_virtually(test())


def test_shutdown_waits_for_its_own_permission_after_other_reports() -> None:
    async def test() -> None:
        channel = Channel(BrokerHeartbeatResponse(), *[BrokerHeartbeatResponse()] * 2, PERMISSION)
        sender = heartbeats(channel)
        sender.directory_failed(A)
        await asyncio.sleep(1)
        assert len(channel.requests) == 1
        assert await sender.shut_down(60_000)
        assert not channel.responses
        await sender.stop()

    run_virtually(test())


def test_replica_in_a_lost_directory_is_reported_without_a_failure() -> None:
    async def test() -> None:
        channel = Channel(AssignReplicasToDirsResponse())
        sender = heartbeats(channel)
        sender.report_replicas({(TOPIC, 0): LOST_DIRECTORY})
        await asyncio.sleep(1)
        (sent,) = channel.requests
        assert replicas_of(sent) == {(TOPIC, 0): LOST_DIRECTORY}
        await sender.stop()

    run_virtually(test())


def test_report_after_the_stop_is_not_sent() -> None:
    """A log directory may fail while the broker stops."""

    async def test() -> None:
        channel = Channel(AssignReplicasToDirsResponse())
        sender = heartbeats(channel)
        await sender.stop()
        sender.report_replicas({(TOPIC, 0): A})
        sender.directory_failed(A)
        await asyncio.sleep(1)
        assert not channel.requests

    run_virtually(test())


def test_report_that_was_withdrawn_is_not_sent() -> None:
    async def test() -> None:
        channel = Channel(AssignReplicasToDirsResponse())
        epochs = [-1, 70]  # not registered at first
        sender = heartbeats(channel, epochs)
        sender.report_replicas({(TOPIC, 0): LOST_DIRECTORY, (TOPIC, 1): A})
        await asyncio.sleep(0)
        sender.withdraw_lost([(TOPIC, number) for number in range(3)])
        await asyncio.sleep(1)
        (sent,) = channel.requests
        assert replicas_of(sent) == {(TOPIC, 1): A}
        await sender.stop()

    run_virtually(test())


# --- whole brokers ---


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    def start(test: Callable[[ClusterBrokers], Awaitable[None]]) -> None:
        run_with_cluster(tmp_path, test, directories=2)

    return start


def test_e5_broker_that_stops_hands_over_its_leaderships_before(run: Callable[..., None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2, 1, 3], [3, 2, 1]])
        stopped = 2 if cluster.controller_id != 2 else 3
        partition = stopped - 2
        others = [each for each in IDS if each != stopped]
        leaders: dict[int, int] = {}
        server = cluster.servers[stopped]
        end_serving = server._end_serving

        async def end() -> None:
            for each in others:
                found = cluster.image(each).partition("t", partition)
                assert found is not None
                leaders[each] = found.leader
            await end_serving()

        for step in server._stopping._steps:
            if step[0] == "the connections":
                server._stopping._steps.remove(step)
                break
        server._stopping.add("the connections", end, 1_000)
        await cluster.stop(stopped)
        assert set(leaders) == set(others)
        assert stopped not in leaders.values() and -1 not in leaders.values()

    run(test)


def test_all_brokers_of_a_cluster_can_stop_one_after_the_other(run: Callable[..., None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2, 1, 3]])
        await cluster.stop()

    run(test)


def directory(cluster: ClusterBrokers, broker: int, partition: int) -> LogDir:
    found = cluster.servers[broker].services.replica_manager.find("t", partition)
    assert found is not None
    return found.log.log_dir


def known_directories(cluster: ClusterBrokers, at: int, number: int) -> tuple[Uuid, ...]:
    """Return the directories that the metadata of a broker has for the replicas of t."""
    found = cluster.image(at).partition("t", number)
    return found.directories if found else ()


def located(cluster: ClusterBrokers, number: int) -> tuple[Uuid, ...]:
    """Return the directories in which the replicas of t are."""
    found = cluster.image(1).partition("t", number)
    assert found is not None
    managers = [cluster.servers[each].services.log_manager for each in found.replicas]
    paths = [directory(cluster, each, number).path for each in found.replicas]
    return tuple(manager.directory_ids[path] for manager, path in zip(managers, paths, strict=True))


def test_metadata_has_the_directory_of_each_replica(run: Callable[..., None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2, 1], [2, 3], [1, 2]])
        for number in range(3):
            await cluster.until(
                lambda n=number: known_directories(cluster, 3, n) == located(cluster, n)
            )  # type: ignore[misc]
        assert len({each for number in range(3) for each in located(cluster, number)}) > 3

    run(test)


def test_leaderships_move_away_from_a_failed_directory(run: Callable[..., None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2, 1], [2, 1], [2, 3]])
        failed = directory(cluster, 2, 0)
        assert directory(cluster, 2, 1) is not failed
        failed.fail(OSError("broken"), "test")

        def has_moved(at: int) -> bool:
            found = [cluster.image(at).partition("t", number) for number in range(2)]
            return [each.leader if each else None for each in found] == [1, 2]

        await cluster.until(lambda: all(has_moved(at) for at in IDS))
        await cluster.until(lambda: len(cluster.image(1).brokers[BrokerId(2)].directories) == 1)
        cluster.expire(2)
        epoch = cluster.member(2).broker_epoch
        await cluster.until(lambda: cluster.image(1).brokers[BrokerId(2)].epoch > epoch)
        assert len(cluster.image(1).brokers[BrokerId(2)].directories) == 1

    run(test)


def test_broker_fails_with_its_last_directory(run: Callable[..., None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2, 1], [2, 1]])
        for number in range(2):
            directory(cluster, 2, number).fail(OSError("broken"), "test")
        failure = await cluster.servers[2].failed()
        assert isinstance(failure, KafkaError)
        assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.stop(2)
        await cluster.until(lambda: cluster.leader("t", 0) == cluster.leader("t", 1) == 1)

    run(test)


@pytest.mark.parametrize("is_controller", [False, True])
def test_e4_broker_stops_after_the_controller_has_recorded_that_its_last_directory_failed(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_controller: bool
) -> None:
    """Without its boot id, its next start in the same boot does not count as clean."""

    async def test(cluster: ClusterBrokers) -> None:
        active = cluster.controller_id
        failed = active if is_controller else active % 3 + 1
        other = failed % 3 + 1
        await cluster.create_topic("t", assignment=[[failed, other]])
        recording, recorded = asyncio.Event(), asyncio.Event()
        heartbeat = ClusterController.broker_heartbeat

        async def delayed(*arguments: Any, **options: Any) -> Any:
            recording.set()
            await recorded.wait()
            return await heartbeat(*arguments, **options)

        monkeypatch.setattr(ClusterController, "broker_heartbeat", delayed)
        server = cluster.servers[failed]
        for each in server.services.log_manager.log_dirs:
            each.fail(OSError("broken"), "test")
        failure = asyncio.ensure_future(server.failed())
        await recording.wait()
        refused = await cluster.produce("t", b"x", at=failed)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not failure.done()
        assert cluster.image(other).brokers[BrokerId(failed)].boot_id
        recorded.set()
        assert isinstance(await failure, KafkaError)
        controller = cluster.member(active).cluster_controller
        assert not controller.image.brokers[BrokerId(failed)].boot_id
        assert cluster.member(failed).lifecycle._registration is not None
        assert not cluster.member(failed).lifecycle._registration.boot_id
        await cluster.stop(failed)
        await cluster.until(lambda: cluster.leader("t") == other)

    run(test)


def test_operator_stops_a_broker_whose_last_failure_the_controller_does_not_record(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()

    async def refuse(*_: object, **__: object) -> HeartbeatResult:
        refused.set()
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async def test(cluster: ClusterBrokers) -> None:
        monkeypatch.setattr(ClusterController, "broker_heartbeat", refuse)
        for each in cluster.servers[2].services.log_manager.log_dirs:
            each.fail(OSError("broken"), "test")
        failure = asyncio.ensure_future(cluster.servers[2].failed())
        await refused.wait()
        assert not failure.done()
        await cluster.stop(2)
        assert isinstance(await failure, KafkaError)
        monkeypatch.undo()

    run(test)


def test_e4_broker_that_is_killed_before_the_report_of_an_error_does_not_restart_cleanly(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> HeartbeatResult:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async def test(cluster: ClusterBrokers) -> None:
        server = cluster.servers[2]
        log_manager = server.services.log_manager
        registered = cluster.image(1).brokers[BrokerId(2)].boot_id
        assert server._page_cache_mark(log_manager).identity() == registered
        monkeypatch.setattr(ClusterController, "broker_heartbeat", refuse)
        log_manager.log_dirs[0].fail(OSError("broken"), "test")
        assert cluster.image(1).brokers[BrokerId(2)].boot_id == registered
        assert server._page_cache_mark(log_manager).identity() != registered
        monkeypatch.undo()

    run(test)


def test_leaderships_move_away_from_a_full_disk_until_it_has_space(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        checks: list[str] = []
        has_space = False

        async def check(_: ReplicaDirectories, log_dir: LogDir) -> bool:
            checks.append(log_dir.path)
            return has_space

        monkeypatch.setattr(ReplicaDirectories, "_has_space", check)
        await cluster.create_topic("t", assignment=[[2, 1]])
        await cluster.create_topic("alone", assignment=[[2]])
        full = directory(cluster, 2, 0)
        found = cluster.servers[2].services.replica_manager.find("alone", 0)
        assert found is not None
        for each in {full, found.log.log_dir}:
            each.append_refused(OSError(errno.ENOSPC, "full"), "test")
        await cluster.until(lambda: cluster.leader("t") == 1)
        await cluster.until(lambda: len(checks) > 2)
        assert cluster.leader("alone") == 2
        assert full.is_full and not full.offline
        has_space = True
        await cluster.until(lambda: not full.is_full)

        def is_in_sync() -> bool:
            partition = cluster.image(1).partition("t", 0)
            assert partition is not None
            return set(partition.isr) == {1, 2} and LOST_DIRECTORY not in partition.directories

        await cluster.until(is_in_sync)

    run(test)


def test_report_of_a_full_disk_that_arrives_when_it_has_space_is_corrected(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was cut off from the controller in the meantime."""

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2, 1]])
        await cluster.until(lambda: known_directories(cluster, 1, 0) == located(cluster, 0))
        delivery = asyncio.Event()
        delayed: list[Message] = []
        assign = cluster.member(2).heartbeats._assign

        async def delay(request: AssignReplicasToDirsRequest) -> int:
            delayed.append(request)
            await delivery.wait()
            return await assign(request)

        async def has_space(*_: object) -> bool:
            return bool(delayed)

        monkeypatch.setattr(cluster.member(2).heartbeats, "_assign", delay)
        monkeypatch.setattr(ReplicaDirectories, "_has_space", has_space)
        full = directory(cluster, 2, 0)
        full.append_refused(OSError(errno.ENOSPC, "full"), "test")
        await cluster.until(lambda: bool(delayed) and not full.is_full)
        delivery.set()

        def is_corrected() -> bool:
            partition = cluster.image(1).partition("t", 0)
            assert partition is not None
            own = dict(zip(partition.replicas, partition.directories, strict=False))
            return own.get(BrokerId(2), LOST_DIRECTORY) not in (LOST_DIRECTORY, ZERO_UUID)

        await cluster.until(lambda: len(delayed) > 1 and is_corrected())
        assert list(replicas_of(delayed[0]).values()) == [LOST_DIRECTORY]
        assert list(replicas_of(delayed[-1]).values()) != [LOST_DIRECTORY]

    run(test)


@pytest.mark.parametrize("count", [0, 1])
def test_e4_broker_with_a_directory_without_an_id_registers_without_its_boot_id(
    tmp_path: Path, count: int
) -> None:
    """The failure of such a directory cannot be reported. The second start has `count` of them."""
    paths = [tmp_path / name for name in ("a", "b")]
    properties = {
        "log.dirs": ",".join(map(str, paths)),
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }

    async def registered() -> BrokerRegistration:
        server = BrokerServer(BrokerConfig.from_properties(properties))
        await server.start()
        try:
            (broker,) = server.services.image().brokers.values()
            return broker
        finally:
            await server.stop()

    first = asyncio.run(registered())
    for path in paths[:count]:
        file = path / "meta.properties"
        lines = [each for each in file.read_text().splitlines() if "directory.id" not in each]
        file.write_text("\n".join(lines))
    second = asyncio.run(registered())
    assert first.boot_id
    assert second.boot_id == ("" if count else first.boot_id)
    assert len(second.directories) == 2 - count
