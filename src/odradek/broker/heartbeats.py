"""Reports of this broker to the controller: its shutdown, and log directories that have failed.

Polls of the metadata feed show the controller that a broker is alive. The broker sends
BrokerHeartbeat (KIP-631) only when it has something to report:

- It wants to shut down. The controller moves the leaderships to other brokers. The broker repeats
  the request until the controller permits the shutdown (rule E5).
- A log directory has failed. Before that, AssignReplicasToDirs (KIP-858) says which replicas it
  had, so that the controller moves their leaderships.
- No log directory works. The controller records that, and the broker stops afterwards.
- It has several log directories, and the controller does not know the one of a replica.

`Reports` decides on the next request, without input and output. `BrokerHeartbeats` sends them, one
at a time, until everything is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from odradek.client.connection import TooManyRequests, UnsupportedRequest
from odradek.environment.backoff import Backoff
from odradek.environment.timers import Timers
from odradek.errors import received_code
from odradek.ids import LOST_DIRECTORY, BrokerId, Uuid
from odradek.metadata.controller_channel import ControllerChannel
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH
from odradek.protocol.errors import UnencodableMessage
from odradek.protocol.messages.assign_replicas_to_dirs_request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
)
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.result_tasks import wait

logger = logging.getLogger(__name__)

ASSIGNMENTS_MAX = 2_250
"""Maximum number of replicas in an AssignReplicasToDirs request, as in Kafka."""

Replica = tuple[Uuid, int]
"""Topic id and number of a partition."""

_NOT_SENT = (OSError, TooManyRequests, UnsupportedRequest, UnencodableMessage)


class Sender(NamedTuple):
    """The broker in a request: its id, and the epoch of its registration."""

    broker_id: BrokerId
    epoch: int


@dataclass(slots=True)
class Reports:
    """Reports that the controller has not received yet. Pure.

    Attributes:
        wants_shutdown: The broker waits for the permission to shut down.
        may_shut_down: The controller has permitted it.
        replicas: The log directory of each replica that is to be reported.
        failed_directories: All log directories that have failed.
        has_no_directory: No log directory works. The directories of replicas are then less urgent.
    """

    wants_shutdown: bool = False
    may_shut_down: bool = False
    replicas: dict[Replica, Uuid] = field(default_factory=dict)
    failed_directories: dict[Uuid, None] = field(default_factory=dict)
    has_no_directory: bool = False
    _reported: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to report."""
        return (
            not self.replicas
            and self.has_reported_failures
            and (self.may_shut_down or not self.wants_shutdown)
        )

    @property
    def has_reported_failures(self) -> bool:
        """Whether the controller has recorded all failed log directories."""
        return self._reported == len(self.failed_directories)

    def next_request(
        self, sender: Sender, metadata_offset: int
    ) -> AssignReplicasToDirsRequest | BrokerHeartbeatRequest:
        """Return the next request.

        Replicas come before the failure of their directory, unless it is the last directory.
        """
        if not self.replicas or (self.has_no_directory and not self.has_reported_failures):
            return BrokerHeartbeatRequest(
                *sender,
                metadata_offset,
                want_shut_down=self.wants_shutdown,
                offline_log_dirs=list(self.failed_directories),
            )
        directories: dict[Uuid, dict[Uuid, list[PartitionData]]] = {}
        for (topic_id, number), directory in islice(self.replicas.items(), ASSIGNMENTS_MAX):
            topics = directories.setdefault(directory, {})
            topics.setdefault(topic_id, []).append(PartitionData(number))
        return AssignReplicasToDirsRequest(
            *sender,
            [
                DirectoryData(
                    directory, [TopicData(topic_id, found) for topic_id, found in topics.items()]
                )
                for directory, topics in directories.items()
            ],
        )

    def assigned(self, request: AssignReplicasToDirsRequest) -> None:
        """Note that the controller has taken the directories of the request.

        It refuses replicas of partitions that do not exist any longer, which need no report.
        """
        for directory in request.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = topic.topic_id, partition.partition_index
                    if self.replicas.get(key) == directory.id:  # no newer report of the replica
                        del self.replicas[key]

    def beaten(self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse) -> None:
        """Note the response to a heartbeat without an error."""
        self._reported = len(request.offline_log_dirs)
        self.may_shut_down |= request.want_shut_down and response.should_shut_down


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Times of the reports.

    Attributes:
        request_timeout_ms: Limit of a request with all its attempts.
        interval_ms: Delay after a failure, or a shutdown that is not permitted yet. Each further
            one doubles it, as in Kafka.
        interval_max_ms: Upper bound of the delay.
    """

    request_timeout_ms: int = 5_000
    interval_ms: int = 50
    interval_max_ms: int = 1_000


class BrokerHeartbeats:
    """Owner of the reports of one broker. Used on the event loop only.

    Args:
        channel: Requests to the controller. This object owns it and closes it.
        broker_id: This broker.
        broker_epoch: Returns the epoch of its newest registration, or -1.
        metadata_offset: Returns the metadata offset of its image.
        timers: Timers of the delays.
        settings: Times.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        metadata_offset: Callable[[], int],
        timers: Timers,
        settings: HeartbeatSettings | None = None,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._metadata_offset = metadata_offset
        self._timers = timers
        self._settings = settings or HeartbeatSettings()
        self._reports = Reports()
        self._sending: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._permitted = asyncio.Event()
        self._recorded = asyncio.Event()

    def directory_failed(self, directory: Uuid) -> None:
        """Report a log directory that has failed, after its replicas."""
        self._reports.failed_directories[directory] = None
        self._send()

    def report_replicas(self, replicas: Mapping[Replica, Uuid]) -> None:
        """Report the log directories of replicas."""
        self._reports.replicas.update(replicas)
        if not self._reports.is_complete:
            self._send()

    def withdraw_lost(self, replicas: Iterable[Replica]) -> None:
        """Withdraw the reports that these replicas are in an unknown directory.

        A report in flight still takes effect.
        """
        pending = self._reports.replicas
        for each in replicas:
            if pending.get(each) == LOST_DIRECTORY:
                del pending[each]

    async def shut_down(self, timeout_ms: float) -> bool:
        """Return when the controller permits the shutdown, or after the timeout.

        Returns:
            Whether it is permitted: this broker leads no partition, and the others know that.
        """
        self._reports.wants_shutdown = True
        self._send()
        timer = self._timers.call_later(timeout_ms / 1000, self._permitted.set)
        try:
            await self._permitted.wait()
        finally:
            timer.cancel()
        return self._reports.may_shut_down

    async def report_last_failure(self, directories: Iterable[Uuid]) -> None:
        """Report that no log directory works. Return when the controller has recorded it.

        Args:
            directories: The ids of all log directories.
        """
        self._reports.failed_directories.update(dict.fromkeys(directories))
        self._reports.has_no_directory = True
        if not self._reports.has_reported_failures:
            self._send()
            await self._recorded.wait()

    async def stop(self) -> None:
        """Send nothing from now on."""
        self._is_stopped = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))
        self._channel.close()

    def _send(self) -> None:
        if not self._is_stopped and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        settings = self._settings
        backoff = Backoff(self._timers, settings.interval_ms, settings.interval_max_ms)
        while not self._reports.is_complete:
            epoch = self._broker_epoch()
            if epoch == UNKNOWN_BROKER_EPOCH or not await self._send_next(epoch):
                await backoff.wait()
            else:
                backoff.reset()
        if self._reports.may_shut_down:
            self._permitted.set()

    async def _send_next(self, epoch: int) -> bool:
        """Send the next request. Return whether the one after it may follow without a delay."""
        sender = Sender(self._broker_id, epoch)
        request = self._reports.next_request(sender, self._metadata_offset())
        try:
            if isinstance(request, AssignReplicasToDirsRequest):
                error = await self._assign(request)
            else:
                error = await self._beat(request)
        except _NOT_SENT as failure:
            if isinstance(failure, TimeoutError):
                self._channel.disconnect()  # it may be dead
            logger.warning(
                "broker %d cannot send a report to the controller: %r. It is repeated",
                self._broker_id,
                failure,
            )
            return False
        except Exception:
            logger.exception(
                "bug in a report of broker %d to the controller. It is repeated. Report the "
                "traceback",
                self._broker_id,
            )
            return False
        if error:
            logger.warning(
                "the controller refuses a report of broker %d: %s. It is repeated",
                self._broker_id,
                received_code(error).name,
            )
            return False
        return isinstance(request, AssignReplicasToDirsRequest)

    async def _assign(self, request: AssignReplicasToDirsRequest) -> int:
        timeout_ms = self._settings.request_timeout_ms
        sent = self._channel.send(request, AssignReplicasToDirsResponse, timeout_ms=timeout_ms)
        response = await wait(sent)
        if not response.error_code:
            self._reports.assigned(request)
        return response.error_code

    async def _beat(self, request: BrokerHeartbeatRequest) -> int:
        timeout_ms = self._settings.request_timeout_ms
        sent = self._channel.send(request, BrokerHeartbeatResponse, timeout_ms=timeout_ms)
        response = await wait(sent)
        if not response.error_code:
            self._reports.beaten(request, response)
            if self._reports.has_no_directory and self._reports.has_reported_failures:
                self._recorded.set()
        return response.error_code
