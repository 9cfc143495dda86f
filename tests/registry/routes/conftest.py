"""Fixtures of the tests of routes."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from odradek.registry.app import create_app
from tests.registry.routes.memory_registry import MemoryRegistry, fill


@pytest.fixture
def registry() -> MemoryRegistry:
    """A registry without schemas."""
    return MemoryRegistry()


@pytest.fixture
def client(registry: MemoryRegistry) -> TestClient:
    """A client of the registry with the schemas of `fill`."""
    client = TestClient(create_app(registry))
    fill(client)
    registry.requests.clear()
    return client
