"""The exchange of one scenario with one broker: requests, waits, and recorded responses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from conformance.differential.plain import Plainer
from conformance.differential.wire import ConnectionClosed, NoResponse, Wire
from odradek.protocol.messages import (
    create_topics_request,
    find_coordinator_request,
    metadata_request,
    offset_fetch_request,
)
from odradek.protocol.messages import list_offsets_request as lo
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest

SETTLE_S = 20.0
COORDINATOR_RETRIES = {14, 15, 16}


class Session:
    """One run of a scenario against one broker.

    `version` is the version of the API under test. `name()` returns the same names for both
    brokers and other names in each run. `responses` holds (step, plain response) in order.
    """

    def __init__(self, bootstrap: str, version: int, prefix: str) -> None:
        self.version = version
        self.responses: list[tuple[str, Any]] = []
        self.plainer = Plainer(prefix)
        self._prefix = prefix
        self._bootstrap = bootstrap
        self._wires: dict[str, Wire] = {}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def name(self, hint: str = "t") -> str:
        return f"{self._prefix}-{hint}"

    def wire(self, on: str = "main") -> Wire:
        """Return the connection of this name. Open it on first use, and again if it was closed."""
        if on not in self._wires:
            self._wires[on] = Wire(self._bootstrap)
        return self._wires[on]

    def ask(self, step: str, request: Any, version: int | None = None, *, on: str = "main") -> Any:
        """Send, and keep the response under `step`. Return None if the broker closed the
        connection.
        """
        self.send(request, version, on=on)
        return self.take(step, on=on)

    def send(self, request: Any, version: int | None = None, *, on: str = "main") -> None:
        version = self.version if version is None else version
        with contextlib.suppress(ConnectionClosed):
            self.wire(on).send(request, version)

    def take(self, step: str, *, on: str = "main") -> Any:
        """Keep the next response of a connection under `step`."""
        assert step not in dict(self.responses), f"two steps are named {step}"
        try:
            response = self.wire(on).receive()
        except (ConnectionClosed, NoResponse) as end:
            self.responses.append((step, type(end).__name__))
            self._wires.pop(on).close()
            return None
        self.responses.append((step, self.plainer.plain(response)))
        return response

    def note(self, step: str, value: Any) -> None:
        """Keep a value that the scenario computed."""
        self.responses.append((step, value))

    def raw(self, step: str, frame: bytes) -> None:
        """Send a frame as a separate request, and keep the bytes of the response under `step`."""
        wire = Wire(self._bootstrap)
        try:
            wire.send_frame(frame)
            self.note(step, wire.receive_frame().hex())
        except (ConnectionClosed, NoResponse, OSError) as end:
            self.note(step, "NoResponse" if isinstance(end, NoResponse) else "ConnectionClosed")
        finally:
            wire.close()

    def quiet(self, request: Any, version: int) -> Any:
        """Send without keeping the response."""
        wire = self.wire("quiet")
        wire.send(request, version)
        return wire.receive()

    def until(self, ready: Callable[[Any], bool], request: Any, version: int) -> Any:
        """Repeat a request until `ready(response)`: Kafka completes work in the background."""
        ends = time.monotonic() + SETTLE_S
        while True:
            response = self.quiet(request, version)
            if ready(response) or time.monotonic() > ends:
                return response
            time.sleep(0.02)

    def create(self, hint: str = "t", partitions: int = 1, **configs: str) -> str:
        """Create a topic and wait for its leaders. Config names have ``_`` for ``.``.

        Returns:
            The name of the topic.
        """
        name = self.name(hint)
        creatable = [
            create_topics_request.CreatableTopicConfig(key.replace("_", "."), value)
            for key, value in configs.items()
        ]
        topic = create_topics_request.CreatableTopic(name, partitions, 1, [], creatable)
        response = self.quiet(create_topics_request.CreateTopicsRequest([topic], 10_000), 7)
        assert response.topics[0].error_code == 0, response
        self.led(name)
        return name

    def led(self, name: str) -> Any:
        """Wait until the partitions have leaders that serve them. Return the topic's metadata."""
        requested = [metadata_request.MetadataRequestTopic(name=name)]
        request = metadata_request.MetadataRequest(requested, False)

        def ready(response: Any) -> bool:
            topic = response.topics[0]
            return topic.error_code == 0 and all(p.error_code == 0 for p in topic.partitions)

        found = self.until(ready, request, 12).topics[0]
        ends = [lo.ListOffsetsPartition(p.partition_index, -1, -1) for p in found.partitions]
        ask = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(name, ends)])
        self.until(lambda a: all(p.error_code == 0 for p in a.topics[0].partitions), ask, 8)
        return found

    def fill(self, request: Any) -> None:
        """Produce without keeping the response. The request must succeed."""
        response = self.quiet(request, 9)
        for topic in response.responses:
            assert all(part.error_code == 0 for part in topic.partition_responses), response

    def producer_id(self) -> int:
        """Return a producer id. Kafka's broker first fetches a block of ids from the controller."""
        request = InitProducerIdRequest(None, 1000)
        found: int = self.until(lambda a: a.error_code == 0, request, 4).producer_id
        return found

    def gone(self, name: str) -> None:
        """Wait until the broker reports the topic as unknown."""
        requested = [metadata_request.MetadataRequestTopic(name=name)]
        request = metadata_request.MetadataRequest(requested, False)
        self.until(lambda response: response.topics[0].error_code == 3, request, 12)

    def topic_id(self, name: str) -> bytes:
        found: bytes = self.led(name).topic_id
        return found

    def group(self, hint: str = "g") -> str:
        """Return the name of a group whose coordinator is loaded."""
        name = self.name(hint)
        find = find_coordinator_request.FindCoordinatorRequest(name)
        self.until(lambda response: response.error_code == 0, find, 3)
        fetch = offset_fetch_request.OffsetFetchRequest(name, None)
        self.until(lambda response: response.error_code not in COORDINATOR_RETRIES, fetch, 7)
        return name
