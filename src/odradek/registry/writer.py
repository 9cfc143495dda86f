"""The writer of one term: it executes decisions, one at a time.

The state of a decision includes all records of the log. The log below the start of the term was
applied before the term began. Each own record is applied before the next decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from odradek.registry.applied_log import AppliedLog
from odradek.registry.decisions.decision import Decision
from odradek.registry.errors import (
    RegistryError,
    operation_timeout,
    schema_too_large,
    store_error,
    unknown_leader,
)
from odradek.registry.json_value import JsonValue
from odradek.registry.records import Foreign, Record, decode, encode
from odradek.registry.state import RegistryState
from odradek.registry.transactions import (
    EncodedRecord,
    RecordTooLarge,
    TransactionalProducer,
    WriteRefused,
    WriterLost,
)
from odradek.result_tasks import shielded

logger = logging.getLogger(__name__)

APPLY_TIMEOUT_S = 10.0
"""Time limit for the state to apply the records of a committed transaction."""


class RegistryWriter:
    """Executes decisions with the producer of one term. Owned by the event loop.

    Args:
        producer: The producer, which has fenced its predecessors.
        applied: The state.
        executor: The one thread on which the producer runs. Decisions run on it, too, because they
            parse and compare schemas.
        lost: Receives the error after which the term ends.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        applied: AppliedLog,
        executor: Executor,
        lost: Callable[[WriterLost], None],
    ) -> None:
        self._producer = producer
        self._applied = applied
        self._executor = executor
        self._lost = lost
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[JsonValue]] = set()
        self._written = 0
        self._is_stopped = False

    async def execute(self, decide: Callable[[RegistryState], Decision]) -> JsonValue:
        """Write the records of a decision, wait until the state has applied them, respond.

        The write goes on if the caller is cancelled.

        Raises:
            RegistryError: The error of the decision. 50004: this instance is no longer the writer,
                and nothing was written. 50001 or 42209: the brokers refused the records. 50001: a
                record is not valid. 50002: it is unknown whether the records were written.
        """
        task = asyncio.get_running_loop().create_task(self._execute(decide))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await shielded(task, "a write of the registry")

    def stop(self) -> None:
        """Begin no further write. Waiting ones get 50004."""
        self._is_stopped = True

    async def drained(self, timeout_s: float) -> None:
        """Return when the write in progress has ended, or after `timeout_s` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _execute(self, decide: Callable[[RegistryState], Decision]) -> JsonValue:
        async with self._lock:
            if self._is_stopped:
                raise unknown_leader()
            await self._apply_written()
            decision = await self._applied.read_in(self._executor, decide)
            if decision.records:
                self._written = await self._write(decision.records) + 1
                await self._apply_written()
                self._require_applied(self._written - len(decision.records))
            return decision.response

    async def _write(self, records: tuple[Record, ...]) -> int:
        """Write records in one transaction, and return the offset of the last one."""
        encoded = [_checked(each) for each in records]
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._producer.write, encoded)
        except RecordTooLarge as error:
            raise schema_too_large(f"The schema is too large: {error}") from None
        except WriteRefused as error:
            logger.warning("the brokers refused a write of %d records: %s", len(records), error)
            raise store_error(f"The brokers refused the write: {error}") from None
        except WriterLost as error:
            self._is_stopped = True
            self._lost(error)
            raise _error_of_lost_writer(error) from None

    def _require_applied(self, first: int) -> None:
        """Check that the state has applied the records from offset `first` on."""
        skipped = self._applied.last_skipped
        if skipped >= first:
            raise store_error(
                f"The registry has written a record at offset {skipped} that it does not accept."
                " The log line about this offset has the reason"
            )

    async def _apply_written(self) -> None:
        """Return when the state has applied all records that this writer has written.

        Raises:
            RegistryError: 50002. The records are committed.
        """
        try:
            async with asyncio.timeout(APPLY_TIMEOUT_S):
                await self._applied.reached(self._written)
        except TimeoutError:
            raise operation_timeout(
                f"The records up to offset {self._written - 1} are committed, but this instance has"
                f" not read them within {APPLY_TIMEOUT_S:g} s"
            ) from None


def _checked(record: Record) -> EncodedRecord:
    """Return the key and the value of a record.

    Raises:
        RegistryError: 50001, an instance that reads the record would skip or change it.
    """
    encoded = encode(record)
    decoded = decode(*encoded)
    if isinstance(decoded, Foreign):
        raise store_error(f"A record of the request is not valid: {decoded.reason}")
    if encode(decoded) != encoded:
        raise store_error("A record of the request is read back as another record")
    return encoded


def _error_of_lost_writer(error: WriterLost) -> RegistryError:
    if error.may_be_written:
        return operation_timeout(f"It is unknown whether the write is committed: {error}")
    return unknown_leader(f"This instance is no longer the writer: {error}")
