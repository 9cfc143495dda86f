"""Typed access to the request shapes that a connection remembers."""

from __future__ import annotations

from odradek.broker.requests.repeated_produce import RememberedShapes
from odradek.net.connection import Connection


def remembered_shapes(connection: Connection) -> RememberedShapes:
    remembered = connection.remembered
    assert isinstance(remembered, RememberedShapes)
    return remembered
