"""Requests to other brokers whose responses a test makes."""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.broker.peer_channels import PeerChannels
from odradek.ids import BrokerId
from odradek.protocol.codec import Message
from odradek.results import PendingResult, Result


class Sent(NamedTuple):
    """A request to a broker, and the result that its sender holds."""

    broker: BrokerId
    request: Any
    result: PendingResult[Any]


class RecordedRequests(PeerChannels):
    """Channels without connections: each request waits in `sent` until the test completes it."""

    def __init__(self) -> None:
        super().__init__(lambda: {}, "", lambda *_: NotImplemented)
        self.sent: list[Sent] = []
        self.error: Exception | None = None

    def send(self, broker: BrokerId, request: Message, response: type[Any]) -> Result[Any]:
        if self.error is not None:
            return Result.failed(self.error)
        sent = Sent(broker, request, PendingResult())
        self.sent.append(sent)
        return sent.result
