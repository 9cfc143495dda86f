"""The group consumer of Kafka's first paper: ZooKeeper holds members, owners and offsets.

The layout below ``/consumers/GROUP`` is Kafka 0.8's (`docs/zookeeper-consumer.md`):

* ``ids/CONSUMER``, ephemeral: the subscription of a consumer, as JSON.
* ``owners/TOPIC/PARTITION``, ephemeral: the owner's id with the number of its stream, here 0.
* ``offsets/TOPIC/PARTITION``: the next offset, as a decimal number.

**Rebalance.** Each consumer watches ``ids``, ``/brokers/ids`` and the nodes of its topics. After a
change it stops fetching, commits, deletes its owner nodes, computes its share and creates the owner
nodes of the share. If one exists, it deletes its own again, waits and repeats all steps. A repeated
step has no further effect, which also resolves lost responses.

**Sessions.** ZooKeeper refuses writes of an expired session, and the factory of clients never
continues with another one. So a consumer that has lost its partitions cannot commit. A record is
delivered only while the server must keep the session, which is the session timeout from the sending
of an answered request. Past half of that time, a request renews it first.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from odradek.environment.clock import Clock, SystemClock
from odradek.environment.randomness import SystemRandomness
from odradek.environment.sockets import SocketNetwork
from odradek.metadata import znodes
from odradek.metadata.store.zookeeper_client import Credentials, ZooKeeperAddress, create_client

logger = logging.getLogger(__name__)

Partition = tuple[str, int]
"""A topic and the number of its partition."""
_INTERRUPTIONS = (exceptions.ConnectionLoss, KazooTimeoutError, exceptions.SessionExpiredError)

SESSION_TIMEOUT_MS = 6_000
"""Default of ``zookeeper.session.timeout.ms`` in Kafka 0.8."""
REBALANCE_BACKOFF_MS = 2_000
"""Default of ``rebalance.backoff.ms`` in Kafka 0.8: the longest wait before a claim is repeated."""
REBALANCE_TIMEOUT_MS = 60_000
"""Limit of all attempts of one rebalance. An owner that processes a record keeps its partitions."""
FETCH_WAIT_MAX_MS = 100
"""Longest wait for a record before the watches are checked again."""


class ConsumerError(Exception):
    """There is no session, a rebalance has failed, or offsets are not stored."""


class _InterruptedError(ConsumerError):
    """The outcome of a request is unknown, or the session has ended."""


def share(partitions: Sequence[int], streams: Sequence[str], stream: str) -> list[int]:
    """Return the partitions of a topic that `stream` owns: a range of the sorted partitions.

    `streams` are all streams of the group that read the topic. The first ones, in their order, get
    one partition more if the number of partitions is not a multiple.
    """
    position = sorted(streams).index(stream)
    each, further = divmod(len(partitions), len(streams))
    start = each * position + min(position, further)
    return sorted(partitions)[start : start + each + (position < further)]


class _Session:
    """A session of ZooKeeper. kazoo's thread reports the events, the consumer sends requests."""

    def __init__(self, connect: Callable[[Any], Any], timeout_ms: int, clock: Clock) -> None:
        self._clock = clock
        self._changes = threading.Condition()
        self.timeout_ms = float(timeout_ms)
        self.is_connected = False
        self.is_lost = False
        self.has_changed = True
        self._lasts_until_ms = 0.0
        self._client = connect(self)
        if not self._client.start_async().wait(timeout_ms / 1000):
            self.close()
            raise ConsumerError("ZooKeeper accepts no session. Check its address, and that it runs")

    # On kazoo's thread.
    def completed(self, result: Any) -> None:
        """Do nothing, because `call` waits for the result."""

    def negotiated(self, session_timeout_ms: int) -> None:
        self.timeout_ms = session_timeout_ms or self.timeout_ms

    def state_changed(self, state: str) -> None:
        self.is_connected = state == "CONNECTED"
        self.is_lost |= state == "LOST"
        self.watch()

    def watch(self, _: Any = None) -> None:
        """Request a rebalance. This is the watch of all nodes."""
        with self._changes:
            self.has_changed = True
            self._changes.notify_all()

    # On the thread of the consumer.
    def lasts(self) -> bool:
        """Return whether the server keeps the session for half of its timeout, or longer."""
        half_ms = self.timeout_ms / 2
        if self._lasts_until_ms - self._clock.monotonic_ms() <= half_ms:
            self.call("exists", "/")  # renews the session
        left_ms = self._lasts_until_ms - self._clock.monotonic_ms()
        return self.is_connected and not self.is_lost and left_ms > half_ms

    def wait(self, timeout_ms: float) -> None:
        """Wait for a change, at most `timeout_ms`."""
        with self._changes:
            self._changes.wait_for(lambda: self.has_changed, timeout_ms / 1000)

    def call(self, request: str, *arguments: Any, **options: Any) -> Any:
        """Return the result of kazoo's method `request`. The session timeout limits the wait."""
        if self.is_lost:
            raise _InterruptedError("the session is lost")
        sent_ms = self._clock.monotonic_ms()
        result = getattr(self._client, f"{request}_async")(*arguments, **options)
        try:
            value = result.get(timeout=self.timeout_ms / 1000)
        except (exceptions.NodeExistsError, exceptions.NoNodeError):
            raise
        except _INTERRUPTIONS as error:
            raise _InterruptedError(f"no response to {request} of {arguments[0]}") from error
        except exceptions.KazooException as error:
            self.watch()
            raise ConsumerError(f"{request} of {arguments[0]} is refused: {error!r}") from error
        self._lasts_until_ms = sent_ms + self.timeout_ms
        return value

    def read(self, path: str, missing: Any, *, watched: bool = False) -> Any:
        """Return the JSON value of a node, or `missing`."""
        watch = self.watch if watched else None
        self.call("exists", path, watch)  # watches for the creation, too
        try:
            return znodes.decode(self.call("get", path, watch)[0])
        except exceptions.NoNodeError:
            return missing

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, and watch them or the creation of the node."""
        self.call("exists", path, self.watch)
        try:
            return sorted(self.call("get_children", path, self.watch))
        except exceptions.NoNodeError:
            return []

    def claim(self, path: str, data: bytes) -> int:
        """Create an ephemeral node. Return its zxid, or watch another session's and return 0."""
        try:
            self.call("create", path, data, ephemeral=True, makepath=True)
        except exceptions.NodeExistsError:
            return self.owned(path) or self.owned(path, self.watch)
        return self.owned(path)

    def owned(self, path: str, watch: Callable[..., None] | None = None) -> int:
        """Return the zxid of the creation of this session's ephemeral node, 0 for any other."""
        stat = self.call("exists", path, watch)
        is_own = stat is not None and stat.ephemeralOwner == self._client.client_id[0]
        return int(stat.czxid) if is_own else 0

    def write(self, path: str, data: bytes) -> None:
        try:
            self.call("set", path, data)
        except exceptions.NoNodeError:
            self.call("create", path, data, makepath=True)

    def close(self) -> None:
        """End the session, which deletes its ephemeral nodes."""
        try:
            self._client.stop()
            self._client.close()
        except Exception:
            logger.exception("the ZooKeeper session is not closed and lasts until its timeout")


class ZooKeeperConsumer:
    """A consumer of a group without a coordinator. One thread uses it.

    The offset of a record is committed only after the record was processed: by `commit`, or by a
    rebalance in the next `poll`. A partition without an offset is read from its beginning.

    Attributes:
        consumer_id: The name of the node below ``ids``.
        claims: The zxid that created the owner node of each owned partition. Later owners have
            larger ones, so an external system can refuse writes of an earlier owner.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperAddress,
        group: str,
        topics: Sequence[str],
        *,
        settings: Mapping[str, Any] | None = None,
        consumer_id: str | None = None,
        credentials: Credentials | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_backoff_ms: int = REBALANCE_BACKOFF_MS,
        clock: Clock | None = None,
        create_fetcher: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        """Create a consumer. The first `poll` connects it.

        Args:
            zookeeper: The ensemble, and the chroot of the brokers.
            settings: Further settings of librdkafka, such as other ``bootstrap.servers``.
            consumer_id: Unique in the group. The default is Kafka's: group, host, time, random.
            session_timeout_ms: A consumer that is dead for so long loses its partitions.
        """
        if not re.fullmatch(r"(?!\.{1,2}$)[a-zA-Z0-9._-]+", group):
            raise ValueError(f"the group {group!r} may have letters, digits and ._- only")
        self._clock: Clock = clock or SystemClock()
        suffix = SystemRandomness().uuid().hex()[:8]
        generated = f"{group}_{SocketNetwork().host_name}-{self._clock.time_ms()}-{suffix}"
        self.consumer_id = consumer_id or generated
        self.claims: dict[Partition, int] = {}
        self._root = f"/consumers/{group}"
        self._topics = sorted(set(topics))
        self._backoff_ms = rebalance_backoff_ms
        self._session_timeout_ms = session_timeout_ms
        self._connect = partial(create_client, zookeeper, session_timeout_ms, credentials)
        self._create_fetcher = create_fetcher
        self._settings = {
            **(settings or {}),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self._session: _Session | None = None
        self._fetcher: Any = None
        self._uncommitted: dict[Partition, int] = {}
        self._retry_at_ms = self._limit_at_ms = math.inf

    def poll(self, timeout_s: float = 1.0) -> Message | None:
        """Return the next record, or None if there is none. Earlier records count as processed.

        Raises:
            ConsumerError: There is no session, another consumer keeps a partition, or ZooKeeper
                refuses a request. The next `poll` tries again.
            KafkaException: librdkafka has failed permanently.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_s * 1000
        while True:
            session = self._current_session()
            try:
                if session.has_changed or self._clock.monotonic_ms() >= self._retry_at_ms:
                    self._rebalance(session)
                left_ms = deadline_ms - self._clock.monotonic_ms()
                message = self._fetch(session, max(0.0, min(left_ms, FETCH_WAIT_MAX_MS)))
                if message is not None and session.lasts():
                    self._uncommitted[message.topic(), message.partition()] = message.offset() + 1
                    return message
                if message is not None:
                    session.watch()  # the rebalance fetches it again
            except _InterruptedError as error:
                logger.info("%s repeats a rebalance: %s", self.consumer_id, error)
                session.watch()
            if self._clock.monotonic_ms() >= deadline_ms:
                return None

    def commit(self) -> None:
        """Store the offsets after the records that `poll` has returned.

        Raises:
            ConsumerError: Not all are stored. A later commit stores them, or the session is lost
                and another consumer gets the records again.
        """
        for partition, offset in list(self._uncommitted.items()):
            assert self._session is not None, "offsets belong to a session"
            self._session.write(self._path("offsets", partition), b"%d" % offset)
            del self._uncommitted[partition]

    def close(self) -> None:
        """Leave the group without a commit. A further `poll` joins it again."""
        self._stop_fetching()
        self.claims.clear()
        self._uncommitted.clear()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _current_session(self) -> _Session:
        if self._session is not None and self._session.is_lost:
            logger.warning("%s has lost its session and its partitions", self.consumer_id)
            self.close()
        if self._session is None:
            self._session = _Session(self._connect, self._session_timeout_ms, self._clock)
        return self._session

    def _rebalance(self, session: _Session) -> None:
        session.has_changed = False  # before the reads, so that no later change is missed
        self._release(session)
        if (obstacle := self._take_share(session)) is None:
            self._retry_at_ms = self._limit_at_ms = math.inf
            logger.info("%s owns %s", self.consumer_id, sorted(self.claims))
            return
        self._release(session)
        now_ms = self._clock.monotonic_ms()
        self._retry_at_ms = now_ms + self._backoff_ms
        self._limit_at_ms = min(self._limit_at_ms, now_ms + REBALANCE_TIMEOUT_MS)
        if now_ms >= self._limit_at_ms:
            self._limit_at_ms = math.inf
            raise ConsumerError(f"{self.consumer_id} waits for {obstacle}")

    def _release(self, session: _Session) -> None:
        """Stop fetching, commit, and delete the owner nodes, in this order."""
        self._stop_fetching()
        self.commit()
        for partition in self.claims:
            path = self._path("owners", partition)
            if session.owned(path):
                session.call("delete", path)
        self.claims.clear()

    def _take_share(self, session: _Session) -> str | None:
        """Claim this consumer's share of each topic and fetch it, or return the path in the way."""
        subscription = {
            "version": 1,
            "subscription": dict.fromkeys(self._topics, 1),
            "pattern": "static",
            "timestamp": str(self._clock.time_ms()),
        }
        path = f"{self._root}/ids/{self.consumer_id}"
        if not session.claim(path, znodes.encode(subscription)):
            return path  # of an earlier session that has not expired yet
        addresses = self._brokers(session)
        if not addresses:
            return znodes.BROKER_IDS
        members = {
            name: session.read(f"{self._root}/ids/{name}", {"subscription": {}})["subscription"]
            for name in session.children(f"{self._root}/ids")
        }
        stream = f"{self.consumer_id}-0"
        for topic in self._topics:
            streams = [
                f"{m}-{n}" for m, topics in members.items() for n in range(topics.get(topic, 0))
            ]
            node = session.read(znodes.topic_path(topic), {"partitions": {}}, watched=True)
            for number in share([*map(int, node["partitions"])], streams, stream):
                path = self._path("owners", (topic, number))
                self.claims[topic, number] = 0  # its creation may have an unknown outcome
                self.claims[topic, number] = session.claim(path, stream.encode())
                if not self.claims[topic, number]:
                    return path
        self._start_fetching(session, addresses)
        return None

    def _brokers(self, session: _Session) -> set[str]:
        """Return the first address of each registered broker that needs no security."""
        found: dict[str, str] = {}
        for name in session.children(znodes.BROKER_IDS):
            node = session.read(f"{znodes.BROKER_IDS}/{name}", {"endpoints": ()})
            for listener, _, address in (each.partition("://") for each in node["endpoints"]):
                if node["listener_security_protocol_map"][listener] == "PLAINTEXT":
                    found.setdefault(name, address)
        return set(found.values())

    def _start_fetching(self, session: _Session, addresses: set[str]) -> None:
        starts = [
            TopicPartition(*each, session.read(self._path("offsets", each), OFFSET_BEGINNING))
            for each in self.claims
        ]
        if starts:
            servers = {"bootstrap.servers": ",".join(sorted(addresses))}
            self._fetcher = self._create_fetcher({**servers, **self._settings})
            self._fetcher.assign(starts)

    def _stop_fetching(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            fetcher.close()

    def _fetch(self, session: _Session, timeout_ms: float) -> Message | None:
        if self._fetcher is None:
            session.wait(timeout_ms)
            return None
        message = self._fetcher.poll(timeout_ms / 1000)
        if message is None or message.error() is None:
            return message
        if message.error().fatal():
            raise KafkaException(message.error())
        logger.warning("librdkafka reports %s and continues", message.error())
        return None

    def _path(self, kind: str, partition: Partition) -> str:
        return f"{self._root}/{kind}/{partition[0]}/{partition[1]}"
