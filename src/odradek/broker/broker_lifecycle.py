"""The session of a broker with the metadata store of its cluster, and its registration.

A broker is registered while its ephemeral node ``/brokers/ids/N`` exists. The broker epoch is the
czxid of that node. The node ends with the session. A broker that has lost its session begins
another one and registers again, with the same incarnation id and another epoch (rule Z2).

The id of a broker belongs to one process. The node of a process that was killed exists until its
session has expired, so a start waits for that. If the node is still there, another broker uses the
id, and the start is refused (rule Z6).

Processes that start together find no such node. Each of them creates the ephemeral node
``/odradek/starts/N`` before it uses its log directories, and only one succeeds. The node lasts as
long as the session of the start. A process that loses this session while it loads its logs begins
another one and creates the node again. If another process has created it in between, the start ends
with that error.

A registered broker that has lost its session does not create that node again. Another process that
starts at that time may create it, before or after the broker registers again. Only the first one of
them to register runs, and the other one ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from odradek.environment.clock import Clock
from odradek.environment.timers import Timers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH, BrokerRegistration
from odradek.metadata.store.interface import (
    NO_SESSION,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    SessionState,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
)
from odradek.metadata.store.resolution import create_ephemeral

logger = logging.getLogger(__name__)

RETRY_MS = 500.0
"""Delay before a registration, or the begin of a session, is tried again."""
POLL_MS = 100.0
"""Interval of the checks for the node of a former process."""


class _IdWait:
    """The wait of a start for the end of another process with its id."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._began_ms: float | None = None

    def check(self, duplicate: KafkaError) -> None:
        """Raise the error if the other process has not ended within the timeout. Log the first."""
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
            logger.warning(
                "%s. Waiting up to %g s for the end of its session",
                duplicate.message,
                self._timeout_ms / 1000,
            )
        if now_ms - self._began_ms >= self._timeout_ms:
            raise duplicate


class BrokerLifecycle:
    """Owner of the session, and of the node of this broker. On the event loop.

    Args:
        store: The store, which is not open.
        node_id: This broker.
        clock, timers: The environment.
        check_store: Checks, in each new session, that the store is still the one of the cluster.
            Raises KafkaError if it is not.
        registered: Called after the node of this broker was created, in each session.
        failed: Called with the error after which this broker must stop.
    """

    def __init__(
        self,
        store: MetadataStore,
        node_id: BrokerId,
        *,
        clock: Clock,
        timers: Timers,
        check_store: Callable[[], Awaitable[None]],
        registered: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._timers = timers
        self._check_store = check_store
        self._registered = registered
        self._failed = failed
        self._registration: BrokerRegistration | None = None
        self._clean_shutdown_epoch = UNKNOWN_BROKER_EPOCH
        self._registered_session_id = NO_SESSION
        self._claim_session_id = NO_SESSION
        self._claim_timeout_ms = 0.0
        self._claim_failure: Exception | None = None
        self._is_registering = False
        self._renewal: asyncio.Task[None] | None = None
        self._is_closed = False
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """The epoch of the registration. -1: this broker is not registered."""
        self.registered_epoch = UNKNOWN_BROKER_EPOCH
        """The epoch of the last registration, also after its end. -1: there was none."""

    # --- start ---

    async def open(self) -> None:
        """Begin the first session.

        Raises:
            KafkaError: The store cannot be reached.
        """
        try:
            await self._store.open()
        except StoreFailure as error:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error
        self._store.subscribe(self._session_changed)

    async def connect_again(self) -> None:
        """Wait for the connection before the first registration, or begin another session.

        Raises:
            KafkaError: The store cannot be reached.
        """
        try:
            await self._store.connected()
        except SessionLostError:
            try:
                await self._begin_session()
            except StoreFailure as error:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error

    async def await_id(self, timeout_ms: float) -> None:
        """Wait until no other process is registered with the id of this broker.

        Raises:
            KafkaError: DUPLICATE_BROKER_REGISTRATION. Another process still is after the timeout.
            StoreFailure: The session is not connected.
        """
        waiting = _IdWait(self._clock, timeout_ms)
        await self._store.sync()  # a node that was created a moment ago counts
        while (node := await self._registered_node()) is not None:
            waiting.check(self._duplicate(node))
            await self._timers.sleep(POLL_MS / 1000)

    async def claim_id(self, timeout_ms: float) -> None:
        """Exclude other processes that start with the id of this broker.

        If the session is lost before the registration, the claim is renewed in another session.

        Raises:
            KafkaError: DUPLICATE_BROKER_REGISTRATION. Another process has the id after the timeout.
                INCONSISTENT_CLUSTER_ID. The nodes of the store were removed.
            StoreFailure: The session is not connected.
        """
        path = f"{znodes.STARTS}/{self._node_id}"
        waiting = _IdWait(self._clock, timeout_ms)
        while True:
            session_id = self._store.session_id
            former_id = self._claim_session_id or session_id
            try:
                await create_ephemeral(self._store, path, b"", former_session_id=former_id)
                break
            except NodeExistsError:
                waiting.check(self._duplicate(await self._registered_node()))
                await self._timers.sleep(POLL_MS / 1000)
            except NoNodeError as error:
                reason = (
                    f"the metadata store has no node {znodes.STARTS}. It was changed or removed"
                )
                raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason) from error
        await self.await_id(timeout_ms)
        self._claim_session_id, self._claim_timeout_ms = session_id, timeout_ms

    async def register(
        self, registration: BrokerRegistration, clean_shutdown_epoch: int = UNKNOWN_BROKER_EPOCH
    ) -> None:
        """Register for the first time, in this session or, if it was lost, in another one.

        Args:
            registration: This broker, without its epoch.
            clean_shutdown_epoch: The broker epoch in the clean-shutdown files of the log
                directories.

        Raises:
            KafkaError: Another process is registered with this id, or the store belongs to another
                cluster.
        """
        while self._renewal is not None and not self._renewal.done():
            await asyncio.wait([self._renewal])  # of the claim
        if self._claim_failure is not None:
            raise self._claim_failure
        self._registration = registration
        self._clean_shutdown_epoch = clean_shutdown_epoch
        await self._register()

    def directory_failed(self, directory: Uuid) -> None:
        """Leave a log directory that has failed out of later registrations.

        They have no boot id either. The broker may be killed before it has reported the replicas of
        the directory. A restart with the directory must then not count as a clean one, because the
        error may have dropped pages.
        """
        if self._registration is not None:
            online = [each for each in self._registration.directories if each != directory]
            self._registration = replace(self._registration, directories=tuple(online), boot_id="")

    def last_directory_failed(self) -> None:
        """Leave the proof of a clean stop out of later registrations: no log directory works."""
        if self._registration is not None:
            self._registration = replace(self._registration, boot_id="")
        self._clean_shutdown_epoch = UNKNOWN_BROKER_EPOCH

    # --- sessions ---

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.LOST:
            return
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        has_begun = self._registration is not None or self._claim_session_id != NO_SESSION
        if not has_begun or self._is_closed:
            return
        logger.warning(
            "broker %d has lost its session with the metadata store. It begins another one",
            self._node_id,
        )
        if self._registration is None:
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.get_running_loop().create_task(self._renew_claim())
        elif not self._is_registering:
            self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def _renew_claim(self) -> None:
        """Claim the id in another session. Repeat until a session has the claim."""
        while not self._is_closed:
            try:
                await self._renew_session()
                await self.claim_id(self._claim_timeout_ms)
                if self._store.state not in (SessionState.LOST, SessionState.CLOSED):
                    logger.info("broker %d has claimed its id again", self._node_id)
                    return
            except (StoreFailure, UnknownOutcomeError) as error:
                await self._retry("has not claimed its id", error)
            except Exception as error:  # noqa: BLE001 - the broker stops with it
                self._claim_failure = error
                self._fail(error)
                return

    async def _renew(self) -> None:
        try:
            await self._register()
        except Exception as error:  # noqa: BLE001 - the broker stops with it
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Stop this broker. Without a registration it would take part in nothing."""
        if not isinstance(error, KafkaError):
            logger.error(
                "broker %d cannot begin another session or register in it",
                self._node_id,
                exc_info=error,
            )
        self._failed(error)

    async def _register(self) -> None:
        """Create the node of this broker in a session that is connected. Repeat until it exists.

        One task at a time does this. It also replaces sessions that are lost in the meantime.
        """
        self._is_registering = True
        try:
            await self._register_in_sessions()
        finally:
            self._is_registering = False

    async def _register_in_sessions(self) -> None:
        while not self._is_closed:
            try:
                await self._renew_session()
                if self._has_lost_claim:
                    await self.claim_id(self._claim_timeout_ms)
                if await self._create_node():
                    return
                await self._timers.sleep(POLL_MS / 1000)
            except (StoreFailure, UnknownOutcomeError) as error:
                await self._retry("is not registered", error)

    @property
    def _has_lost_claim(self) -> bool:
        """Whether the session that claimed the id ended before the first registration."""
        if self._claim_session_id == NO_SESSION or self._registered_session_id != NO_SESSION:
            return False
        return self._claim_session_id != self._store.session_id

    async def _retry(self, what: str, error: Exception) -> None:
        logger.warning(
            "broker %d %s: %s. It tries again in %g s", self._node_id, what, error, RETRY_MS / 1000
        )
        await self._timers.sleep(RETRY_MS / 1000)

    async def _renew_session(self) -> None:
        """Begin another session if there is none, and check that it has the store of before."""
        if self._store.state in (SessionState.LOST, SessionState.CLOSED):
            await self._begin_session()
        await self._store.connected()
        await self._check_store()

    async def _begin_session(self) -> None:
        await self._store.close()
        await self._store.open()

    async def _create_node(self) -> bool:
        """Return whether the node of this broker exists in the session that is open now."""
        assert self._registration is not None, "the caller has checked"
        data = znodes.encode_broker(
            self._registration, self._clock.time_ms(), self._clean_shutdown_epoch
        )
        session_id = self._store.session_id
        try:
            created = await create_ephemeral(
                self._store, self._path, data, former_session_id=self._registered_session_id
            )
        except NodeExistsError:
            node = await self._registered_node()
            if node is None or self._is_own(node):
                return False  # an earlier session of this process, which has not expired yet
            raise self._duplicate(node) from None
        except StoreError as error:
            reason = f"the metadata store has no node {error.path}. It was changed or removed"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason) from error
        if self._store.state in (SessionState.LOST, SessionState.CLOSED):
            return False  # in this step. The node has ended with the session
        self._registered_session_id = session_id
        self.broker_epoch = self.registered_epoch = created.stat.czxid
        logger.info(
            "broker %d is registered with epoch %d in session 0x%x",
            self._node_id,
            self.broker_epoch,
            session_id,
        )
        self._registered()
        return True

    @property
    def _path(self) -> str:
        return f"{znodes.BROKER_IDS}/{self._node_id}"

    async def _registered_node(self) -> Node | None:
        try:
            return await self._store.get(self._path)
        except NoNodeError:
            return None

    def _is_own(self, node: Node) -> bool:
        assert self._registration is not None, "the caller has checked"
        try:
            found = znodes.decode_broker(self._node_id, node.data, node.stat.czxid)
        except ValueError:
            return False
        return found.incarnation_id == self._registration.incarnation_id

    def _duplicate(self, node: Node | None) -> KafkaError:
        where = "by another process"
        if node is not None:
            with contextlib.suppress(ValueError):
                other = znodes.decode_broker(self._node_id, node.data, node.stat.czxid)
                where = f"by the broker at {other.host}:{other.port}"
        return KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker id {self._node_id} is in use {where}. Stop that broker, or set another "
            "node.id. Give another cluster a path of its own in zookeeper.connect",
        )

    # --- stop ---

    async def close(self) -> None:
        """End the session, and with it the registration."""
        self._is_closed = True
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])
        if self._store.state is not SessionState.CLOSED:
            await self._store.close()
