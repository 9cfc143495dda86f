"""The client of a request, as a group's metadata remembers it."""

from __future__ import annotations

from typing import NamedTuple


class GroupClient(NamedTuple):
    """The client id, and the address of the client's host with a slash in front."""

    client_id: str
    client_host: str
