"""One instance of the registry, as the routes use it: its state, its parsers, and writes.

Reads use the state of this instance. A write is executed by the writer. If this instance is not the
writer, the request is forwarded, and the response is sent when the state of this instance has
applied the records. So a client reads its own writes from each instance that it writes to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import quote

from odradek.environment.clock import Clock
from odradek.environment.timers import LoopTimers, Timers
from odradek.registry.applied_log import AppliedLog
from odradek.registry.compatibility.levels import incompatibilities
from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.tools import LimitedParsers, SchemaTools
from odradek.registry.election import Leader
from odradek.registry.errors import (
    RegistryError,
    RegistryErrorCode,
    operation_timeout,
    unknown_leader,
)
from odradek.registry.forwarding import ForwardableRequest, Forwarder, WriterUnreachable
from odradek.registry.json_value import JsonValue
from odradek.registry.request_budget import OVERLOADED, RequestBudget
from odradek.registry.schemas.parsers import Parsers
from odradek.registry.state import RegistryState

WRITES_MAX = 256
"""Maximum number of writes that an instance executes, forwards or keeps waiting."""

PARSES_RUNNING_MAX = 2
"""Maximum number of threads that parse and compare schemas for reads. The writer has one more.

Parsers are Python code, so more threads would not be faster. Each of them delays an iteration of
the event loop by 5 ms (`sys.getswitchinterval`). A single call into C is not interrupted: the
JSON parser, or a collection of garbage that visits the parsed schemas. These calls are bounded by
`odradek.registry.schemas.parsed.TEXT_BYTES_MAX`. Two threads that compared schemas of that size
delayed the loop by 15 ms in the median and by 0.5 s at most.
"""

PARSES_WAITING_MAX = 64
"""Maximum number of requests that wait for a thread."""

WRITER_WAIT_S = 5.0
"""Time in seconds that a write waits while the group has no writer, such as during a take-over."""

WRITER_RETRY_PAUSE_S = 0.1
"""Pause in seconds before a write looks for the writer again."""

APPLY_WAIT_S = 10.0
"""Time in seconds that a forwarded write waits until this instance has applied its records."""

CATCH_UPS_MAX = 32
"""Maximum number of reads that ask the writer for its offset at the same time."""

CATCH_UP_WAIT_S = 2.0
"""Time in seconds that a read waits for the writer's offset and for the log up to it."""

OFFSET_REQUEST = ForwardableRequest("GET", "/", {}, b"")
"""A request whose response has the writer's offset in its header."""

T = TypeVar("T")
Decide = Callable[[RegistryState], Decision]


class DecisionWriter(Protocol):
    """The writer of the log, as `odradek.registry.writer.RegistryWriter`."""

    async def execute(self, decide: Decide) -> JsonValue:
        """Write the records of a decision, wait until the state has applied them, respond.

        Raises:
            RegistryError: The error of the decision or of the brokers. 50004: nothing was written.
        """


class Leadership(Protocol):
    """What this instance knows about the writer of the registry."""

    @property
    def writer(self) -> DecisionWriter | None:
        """The writer, if it is this instance."""

    @property
    def known_epoch(self) -> int:
        """The epoch of the newest writer that this instance knows, or 0."""

    async def leader(self, *, refresh: bool = False) -> Leader | None:
        """Return the writer, or None if the group has none or it is this instance.

        Args:
            refresh: The known URL has failed. Read it again, within the limit of such reads.
        """


class Registry(Protocol):
    """One instance of the registry, as the routes use it."""

    @property
    def identity(self) -> Identity:
        """The names for ``/v1/metadata``."""

    @property
    def epoch(self) -> int:
        """The epoch of the newest writer that this instance knows, or 0."""

    @property
    def tools(self) -> SchemaTools:
        """The parsers and the comparison of schemas, with a new budget for one request."""

    @property
    def state(self) -> RegistryState:
        """The state, for reads."""

    async def write(self, decide: Decide, request: ForwardableRequest) -> JsonValue:
        """Execute a write here or on the writer. Return the body of the response."""

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        """Return the result of a call that parses or compares schemas, from a thread."""

    async def read_off_loop(self, read: Callable[[RegistryState], T]) -> T:
        """Return the result of a long read of a snapshot of the state, from a thread."""

    async def catch_up(self) -> bool:
        """Apply the log up to the writer's offset. Return whether the state has changed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The names of a registry that ``/v1/metadata`` returns.

    Attributes:
        cluster_id: The id of the Kafka cluster.
        group: The consumer group that elects the writer.
        version: The version of Odradek.
        commit: The commit of the build, or empty.
    """

    cluster_id: str
    group: str
    version: str
    commit: str = ""

    @property
    def registry(self) -> str:
        """The name of the registry in headers of forwarded requests. All instances share it."""
        return quote(f"{self.cluster_id}/{self.group}")


class RegistryService:
    """The implementation of `Registry`. The event loop owns it.

    Args:
        state: The state, which the reader of the log folds.
        parsers: The parsers and their cache, which threads use, too.
        identity: The names for ``/v1/metadata``.
        leadership: The election of the writer.
        applied: Reports which records the state has applied.
        forwarder: Sends writes to the writer.
        executor: The threads for `parse_off_loop` and `read_off_loop`, `PARSES_RUNNING_MAX`.
        clock: Measures the time that a write waits for a writer.
        timers: The pauses between two attempts of a write.
    """

    def __init__(
        self,
        state: RegistryState,
        parsers: Parsers,
        identity: Identity,
        leadership: Leadership,
        applied: AppliedLog,
        forwarder: Forwarder,
        executor: Executor,
        clock: Clock,
        timers: Timers | None = None,
    ) -> None:
        self.state = state
        self._parsers = parsers
        self.identity = identity
        self._leadership = leadership
        self._applied = applied
        self._forwarder = forwarder
        self._executor = executor
        self._clock = clock
        self._timers = timers or LoopTimers()
        self._parse_threads = asyncio.Semaphore(PARSES_RUNNING_MAX)
        self._parses = 0
        self._writes = 0
        self._catch_ups = 0

    @property
    def epoch(self) -> int:
        """The epoch of the newest writer that this instance knows, or 0."""
        return self._leadership.known_epoch

    @property
    def tools(self) -> SchemaTools:
        """The parsers and the comparison of schemas, with a new budget for one request."""
        budget = RequestBudget(self._clock.monotonic_ms)
        return SchemaTools(
            LimitedParsers(self._parsers, budget), partial(incompatibilities, spend=budget.spend)
        )

    async def write(self, decide: Decide, request: ForwardableRequest) -> JsonValue:
        """Execute a write here or on the writer. Return the body of the response.

        A write that was not executed, because no instance is the writer or because the known one
        cannot be reached, is tried again for `WRITER_WAIT_S`.

        Raises:
            RegistryError: The error of the decision. 503: more than `WRITES_MAX` writes. 50004: no
                writer was found. 50002 or 50003: it is unknown whether the write was executed, or
                this instance has not read its records in time.
        """
        if self._writes >= WRITES_MAX:
            raise RegistryError(OVERLOADED, f"More than {WRITES_MAX} writes are in progress")
        self._writes += 1
        try:
            return await self._write(decide, request)
        finally:
            self._writes -= 1

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        """Return the result of a call that parses or compares schemas, from a thread.

        Args:
            call: It uses no object that the event loop changes.

        Raises:
            RegistryError: 503, more than `PARSES_WAITING_MAX` requests wait for a thread.
        """
        async with self._thread():
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, call)

    async def read_off_loop(self, read: Callable[[RegistryState], T]) -> T:
        """Return the result of a read that parses or compares schemas, from a thread.

        The read gets a snapshot of the state, so that writes are completed in the meantime.

        Raises:
            RegistryError: 503, as for `parse_off_loop`, or the error of the read.
        """
        async with self._thread():
            return await self._applied.read_in(self._executor, read)

    @asynccontextmanager
    async def _thread(self) -> AsyncIterator[None]:
        """Wait until a thread of the executor is free, and occupy it."""
        if self._parses >= PARSES_RUNNING_MAX + PARSES_WAITING_MAX:
            raise RegistryError(OVERLOADED, "Too many schemas wait to be parsed")
        self._parses += 1
        try:
            async with self._parse_threads:
                yield
        finally:
            self._parses -= 1

    async def catch_up(self) -> bool:
        """Apply the log up to the writer's offset.

        Returns:
            Whether the state has changed. It has not if this instance is the writer, or if the
            writer does not respond within `CATCH_UP_WAIT_S`.
        """
        if self._leadership.writer is not None or self._catch_ups >= CATCH_UPS_MAX:
            return False
        before = self.state.offset
        self._catch_ups += 1
        try:
            async with asyncio.timeout(CATCH_UP_WAIT_S):
                await self._follow_writer()
        except (RegistryError, TimeoutError, WriterUnreachable):
            return False
        finally:
            self._catch_ups -= 1
        return self.state.offset > before

    async def _write(self, decide: Decide, request: ForwardableRequest) -> JsonValue:
        deadline_ms = self._clock.monotonic_ms() + WRITER_WAIT_S * 1_000.0
        refresh = False
        while True:
            try:
                return await self._try_write(decide, request, refresh)
            except RegistryError as error:
                was_executed = error.code != RegistryErrorCode.UNKNOWN_LEADER
                is_over = self._clock.monotonic_ms() >= deadline_ms
                if was_executed or is_over or request.is_forwarded:
                    raise
            refresh = True
            await self._timers.sleep(WRITER_RETRY_PAUSE_S)

    async def _try_write(
        self, decide: Decide, request: ForwardableRequest, refresh: bool
    ) -> JsonValue:
        """Execute or forward a write once.

        Raises:
            RegistryError: 50004: the write was not executed. Others as in `write`.
        """
        if request.is_forwarded:
            self._require_same_registry(request)
        writer = self._leadership.writer
        if writer is not None:
            return await writer.execute(decide)
        if request.is_forwarded:
            raise unknown_leader()
        if request.may_skip_writer:
            decision = await self._decide_without_records(decide)
            if decision is not None:
                return decision.response
        leader = await self._leadership.leader(refresh=refresh)
        if leader is None:
            raise unknown_leader()
        return await self._forward(leader, request)

    def _require_same_registry(self, request: ForwardableRequest) -> None:
        """Check that a forwarded request is meant for this registry, and for no later writer.

        A request of another program has no name of a registry, and is executed.
        """
        own = self.identity.registry
        if request.registry and request.registry != own:
            raise unknown_leader(
                f"This is an instance of registry {own}, and the request is for"
                f" {request.registry}. Check --advertise of the writer"
            )
        if request.epoch > self.epoch:
            raise unknown_leader(
                f"The request is for the writer of epoch {request.epoch}, and this instance knows"
                f" epoch {self.epoch} only"
            )

    async def _decide_without_records(self, decide: Decide) -> Decision | None:
        """Return the decision by the state of this instance, if it has nothing to write."""
        try:
            decision = await self.read_off_loop(decide)
        except RegistryError:
            # The writer may know newer records.
            return None
        return None if decision.records else decision

    async def _forward(self, leader: Leader, request: ForwardableRequest) -> JsonValue:
        try:
            response = await self._forwarder.forward(leader, request)
        except WriterUnreachable as error:
            raise unknown_leader(f"The writer is not reachable: {error}") from error
        try:
            async with asyncio.timeout(APPLY_WAIT_S):
                await self._applied.wait_applied(response.offset)
        except TimeoutError:
            raise operation_timeout(
                f"{leader.url} has executed the write, but this instance has not read it within"
                f" {APPLY_WAIT_S:g} s"
            ) from None
        return response.value

    async def _follow_writer(self) -> None:
        """Return when this instance has applied all that the writer has applied."""
        leader = await self._leadership.leader()
        if leader is not None:
            response = await self._forwarder.forward(leader, OFFSET_REQUEST)
            await self._applied.wait_applied(response.offset)
