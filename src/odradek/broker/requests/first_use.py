"""Import of the modules of a request on a thread, before the first request of its kind is executed.

These modules would delay the start of each broker and take memory, and few brokers need them all.
Their import takes 5 to 150 ms, which is longer than a time slice. In the process of `serve`, the
first request of each (API key, version) therefore waits until a thread has imported the modules and
compiled the codecs. The event loop serves other connections in that time. It may wait for the
interpreter's lock, but not longer than one switch interval (5 ms) at a time.

A broker of a cluster imports all of them on a thread when it has started (`FirstUse.preparing`),
because its metadata, coordinators and log cleaner need most of them anyway.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from functools import partial

from odradek.broker.requests.apis import (
    API_BY_KEY,
    APIS,
    INTER_BROKER_API_BY_KEY,
    INTER_BROKER_APIS,
    Api,
    Forwarding,
)
from odradek.metadata.record_classes import RECORD_TYPES, module_of
from odradek.metadata.records import record_class
from odradek.protocol.codec import decoder, encoder, request_decoder
from odradek.protocol.registry import request_class, response_class

logger = logging.getLogger(__name__)

GROUPS = ("odradek.coordinator.group.group_coordinator",)
TRANSACTIONS = (
    "odradek.broker.transactions.markers",
    "odradek.coordinator.transaction.transaction_coordinator",
)
PLANS = ("odradek.controller.plans", *map(module_of, RECORD_TYPES.values()))
"""Modules of changes of metadata."""
BOTH_COORDINATORS = GROUPS + TRANSACTIONS

MODULES: dict[str, tuple[str, ...]] = {
    "produce": (
        "odradek.broker.requests.produce_shapes",
        "odradek.records.scan",
        "odradek.records.validate_body",
        "ctypes",
    ),
    "fetch": ("odradek.broker.requests.fetch_shapes",),
    "find_coordinator": PLANS,
    "init_producer_id": PLANS + TRANSACTIONS,
    "add_offsets_to_txn": BOTH_COORDINATORS,
    "add_partitions_to_txn": TRANSACTIONS,
    "consumer_group_describe": GROUPS,
    "consumer_group_heartbeat": GROUPS,
    "delete_groups": GROUPS,
    "describe_groups": GROUPS,
    "describe_transactions": TRANSACTIONS,
    "end_txn": TRANSACTIONS,
    "heartbeat": GROUPS,
    "join_group": GROUPS,
    "leave_group": GROUPS,
    "list_groups": GROUPS,
    "list_transactions": TRANSACTIONS,
    "offset_commit": GROUPS,
    "offset_delete": GROUPS,
    "offset_fetch": GROUPS,
    "sync_group": GROUPS,
    "txn_offset_commit": BOTH_COORDINATORS,
    "write_txn_markers": BOTH_COORDINATORS,
}
"""Modules by handler that the handler does not import itself, but that its first request needs."""

OF_A_CLUSTER = (
    "odradek.broker.requests.forwarding",
    "odradek.broker.transactions.add_partitions_to_txn_manager",
    "odradek.broker.transactions.marker_sender",
    "odradek.replication.follower_fetch",
    "cramjam",
    "ctypes",
)
"""Modules that the first requests of a broker of a cluster need.

A single broker imports `cramjam` with the first batch that it unpacks, which takes 2 to 4 ms.
"""

LATER_MODULES = ("odradek.broker.log_cleaner",)
"""Modules that a broker needs some time after its start."""


def import_for(api: Api, version: int) -> None:
    """Import the modules of an API, and compile the codec of one version. Runs on any thread."""
    importlib.import_module(f"odradek.broker.handlers.{api.handler}")
    request_decoder(request_class(api.key), version)
    encoder(response_class(api.key), version)
    import_modules(*MODULES.get(api.handler, () if api.forwarding is Forwarding.LOCAL else PLANS))


def import_modules(*names: str) -> None:
    """Import modules. Runs on any thread."""
    for name in names:
        importlib.import_module(name)


def compile_record(api_key: int) -> None:
    """Compile the codecs of a type of metadata records. Runs on any thread."""
    cls = record_class(api_key)
    assert cls is not None, "the caller names a type that changes an image"
    decoder(cls, cls.MAX_VERSION)
    encoder(cls, cls.MAX_VERSION)


class FirstUse:
    """The kinds of requests whose modules are imported. Owned by the event loop.

    Args:
        executor: Runs the imports.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._prepared: set[int] = set()
        self._pending: dict[int, asyncio.Future[None]] = {}
        self.is_stopped = False

    def is_prepared(self, api_key: int, version: int) -> bool:
        """Return whether a request can be executed without imports, or is refused."""
        if self.is_stopped or api_key << 16 | version in self._prepared:
            return True
        return _served(api_key, version) is None

    async def prepare(self, api_key: int, version: int) -> None:
        """Import on a thread. A failure is ignored, because the dispatcher then fails likewise."""
        pending = self._begin(api_key, version)
        if pending is not None:
            await asyncio.wait((pending,))

    def preparing(self) -> Generator[asyncio.Future[None], None, None]:
        """Import the modules of all requests to a broker of a cluster, one API after the other.

        The codecs of the metadata's records are compiled, too. The feed brings all types of them.
        """
        yield self._import_modules(*OF_A_CLUSTER)
        for record in RECORD_TYPES:
            if self.is_stopped:
                return
            yield self._run(partial(compile_record, record))
        for api in (*INTER_BROKER_APIS, *APIS):
            if (pending := self._begin(api.key, api.highest)) is not None:
                yield pending
        if not self.is_stopped:
            yield self.import_later_modules()

    def import_later_modules(self) -> asyncio.Future[None]:
        """Import `LATER_MODULES` on a thread."""
        return self._import_modules(*LATER_MODULES)

    def _import_modules(self, *names: str) -> asyncio.Future[None]:
        return self._run(partial(import_modules, *names))

    def _run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    def stop(self) -> None:
        """Import nothing more on threads."""
        self.is_stopped = True

    def _begin(self, api_key: int, version: int) -> asyncio.Future[None] | None:
        """Return the import that is pending for these requests, or None."""
        api, kind = _served(api_key, version), api_key << 16 | version
        if api is None or kind in self._prepared or self.is_stopped:
            return None
        pending = self._pending.get(kind)
        if pending is None:
            pending = self._run(partial(import_for, api, version))
            self._pending[kind] = pending
            pending.add_done_callback(partial(self._ended, kind, api))
        return pending

    def _ended(self, kind: int, api: Api, done: asyncio.Future[None]) -> None:
        del self._pending[kind]
        self._prepared.add(kind)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error(
                "the modules of %s cannot be imported: %r. Install Odradek again, and restart the "
                "broker",
                api.key.name,
                error,
            )


def _served(api_key: int, version: int) -> Api | None:
    """Return the API of a request, or None if the broker does not have this version."""
    for apis in (API_BY_KEY, INTER_BROKER_API_BY_KEY):
        api = apis.get(api_key)
        if api is not None and api.min_version <= version <= api.max_version:
            return api
    return None
