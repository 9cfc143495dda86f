"""Two brokers in one event loop, of which one is the controller, without a cluster controller.

Each has metadata of its own, so a change shows which of the two made it. Clients connect to the
listener CLIENTS, brokers to BROKERS.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odradek.broker.broker import BrokerServer
from odradek.client.broker_channel import BrokerChannel
from odradek.config.broker import BrokerConfig
from odradek.ids import BrokerId
from odradek.metadata.controller_channel import ControllerNode
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import BrokerRegistration, MetadataImage
from odradek.metadata.image_records import registration_record
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.codec import Message
from odradek.protocol.registry import response_class
from odradek.result_tasks import wait
from odradek.results import Result
from tests.helpers.broker_channels import channel_to, port_of

CONTROLLER_ID, OTHER_ID = 1, 2
EPOCH = 77


class RecordedRequests:
    """The requests that the controller got from brokers, and the responses that it will return."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.responses: deque[Any] = deque()
        self._arrived = asyncio.Event()

    def _respond(self, request: Any) -> Any:
        self.requests.append(request)
        self._arrived.set()
        response = self.responses.popleft() if self.responses else response_to(request)
        return response if isinstance(response, Result) else Result(response)

    alter_partition = broker_heartbeat = poll = image_chunk = _respond
    assign_replicas_to_dirs = finish_deletions = drain_broker = _respond

    async def received(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        while len(self.requests) < count:
            self._arrived.clear()
            await self._arrived.wait()


def response_to(request: Message) -> Message:
    return response_class(request.API_KEY)()


class Roles:
    """The membership of one of the brokers. `role` is the id of the controller in its view."""

    def __init__(self, broker_id: int, nodes: dict[int, ControllerNode]) -> None:
        self._id = broker_id
        self._nodes = nodes
        self.broker_epoch = EPOCH
        self.role: int | None = CONTROLLER_ID
        self.controller_requests = RecordedRequests()

    @property
    def is_controller(self) -> bool:
        return self.role == self._id

    def controller(self) -> ControllerNode | None:
        return None if self.role is None else self._nodes.get(self.role)


class TwoBrokers:
    """The brokers, and connections to them."""

    def __init__(self, tmp_path: Path, config: dict[str, str]) -> None:
        self.nodes: dict[int, ControllerNode] = {}
        self.roles = {each: Roles(each, self.nodes) for each in (CONTROLLER_ID, OTHER_ID)}
        self.servers = {
            each: BrokerServer(
                BrokerConfig(
                    {
                        "node.id": str(each),
                        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
                        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
                        "inter.broker.listener.name": "BROKERS",
                        "log.dirs": str(tmp_path / str(each)),
                        **config,
                    }
                ),
                store=MemoryStore(),
                membership=self.roles[each],
            )
            for each in (CONTROLLER_ID, OTHER_ID)
        }
        self.channels: list[BrokerChannel] = []

    @property
    def controller(self) -> BrokerServer:
        return self.servers[CONTROLLER_ID]

    @property
    def controller_requests(self) -> RecordedRequests:
        return self.roles[CONTROLLER_ID].controller_requests

    @property
    def other(self) -> BrokerServer:
        return self.servers[OTHER_ID]

    def image(self, broker_id: int) -> MetadataImage:
        return self.servers[broker_id].services.image()

    def port(self, broker_id: int, listener: str) -> int:
        return port_of(self.servers[broker_id], listener)

    def channel(self, broker_id: int, listener: str = "CLIENTS") -> BrokerChannel:
        """Return a new connection to a listener of a broker."""
        channel = channel_to(self.servers[broker_id], listener)
        self.channels.append(channel)
        return channel

    async def call(
        self,
        request: Message,
        response: type[Any],
        broker_id: int = OTHER_ID,
        *,
        listener: str = "CLIENTS",
        version: int | None = None,
    ) -> Any:
        """Send a request over a new connection and return its response."""
        return await wait(
            self.channel(broker_id, listener).send(request, response, version=version)
        )

    def change_controller(self, role: int | None, *, at: int | None = None) -> None:
        """Make a broker the controller, in the view of both brokers or of one."""
        for each, roles in self.roles.items():
            if at in (None, each):
                roles.role = role

    async def start(self) -> None:
        for each, server in self.servers.items():
            await server.start()
            port = self.port(each, "BROKERS")
            self.nodes[each] = ControllerNode(BrokerId(each), "127.0.0.1", port)

    async def stop(self) -> None:
        for channel in self.channels:
            channel.close()
        for server in reversed(self.servers.values()):
            await server.stop()


@asynccontextmanager
async def two_brokers(
    tmp_path: Path, config: dict[str, str] | None = None
) -> AsyncIterator[TwoBrokers]:
    brokers = TwoBrokers(tmp_path, config or {})
    await brokers.start()
    try:
        yield brokers
    finally:
        await brokers.stop()


def run_with_two_brokers(
    tmp_path: Path,
    test: Callable[[TwoBrokers], Awaitable[None]],
    config: dict[str, str] | None = None,
) -> None:
    """Run a test on the event loop of both brokers."""

    async def main() -> None:
        async with two_brokers(tmp_path, config) as brokers:
            await test(brokers)

    asyncio.run(main())


async def publish_brokers(server: BrokerServer, *brokers: BrokerRegistration) -> None:
    """Add brokers to the image of a server, or replace them."""
    controller = server.services.controller
    image = controller.image
    delta = MetadataDelta(image)
    for broker in brokers:
        delta.replay(registration_record(broker))
    at = MetadataProvenance(image.controller_id, image.controller_epoch, image.offset + 1)
    await controller._publisher.publish(delta, delta.apply(at))
