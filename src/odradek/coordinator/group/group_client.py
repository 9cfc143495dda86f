"""The client of a request, as the metadata of a group stores it."""

from __future__ import annotations

from typing import NamedTuple


class GroupClient(NamedTuple):
    """The client id and the client's address, with a slash before the address as in Kafka."""

    client_id: str
    client_host: str
