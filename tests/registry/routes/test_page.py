"""docs/registry-endpoints.md lists the endpoints, the limits and the error codes of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.registry.app import resource_table
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.forwarding import TARGET_TOO_LONG
from odradek.registry.request_budget import OVERLOADED, STEPS_MAX, TIME_MS_MAX
from odradek.registry.routes.requests import (
    BODY_BYTES_MAX,
    BODY_TIMEOUT,
    BODY_TIMEOUT_S,
    TOO_LARGE,
)
from odradek.registry.routes.unsupported import UnsupportedRoutes
from odradek.registry.schemas.parsed import TEXT_BYTES_MAX
from odradek.registry.service import WRITER_WAIT_S
from tests.registry.routes.examples import EXAMPLES
from tests.registry.routes.memory_registry import MemoryRegistry

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "registry-endpoints.md"
ENDPOINT = re.compile(r"^\| `([A-Z]+) (\S+)` \|([^|]*)\|", re.M)
CODES = re.compile(r"^\| (\d{3,5}(?:, \d{3,5})*) \|", re.M)


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_page_lists_each_endpoint_once(page: str) -> None:
    unsupported = set(UnsupportedRoutes().resources())
    table = resource_table(MemoryRegistry())
    expected = [
        (method, path)
        for path, handlers in table.items()
        for method in handlers
        if path not in unsupported
    ]
    listed = [(method, path) for method, path, _ in ENDPOINT.findall(page)]
    assert sorted(listed) == sorted(expected)


def test_parameters_of_the_examples_are_on_the_page(page: str) -> None:
    listed = {
        (method, path): set(re.findall(r"`(\w+)`", parameters))
        for method, path, parameters in ENDPOINT.findall(page)
    }
    ignored = {"unknown", "findTags", "lifecycle"}
    for example in EXAMPLES:
        named = set(re.findall(r"[?&](\w+)=", example.url)) - ignored
        if (example.method, example.endpoint) in listed:
            assert named <= listed[example.method, example.endpoint], example.name


def test_page_lists_each_error_code(page: str) -> None:
    listed = {int(code) for codes in CODES.findall(page) for code in codes.split(", ")}
    internal = {RegistryErrorCode.INTERNAL_ERROR}
    limits = {BODY_TIMEOUT, TOO_LARGE, TARGET_TOO_LONG, OVERLOADED}
    assert listed == {*RegistryErrorCode, *limits} - internal


def test_page_has_the_limits_of_the_code(page: str) -> None:
    assert BODY_BYTES_MAX == 4 * 2**20 and "larger than 4 MiB" in page
    assert TEXT_BYTES_MAX == 2**20 and "larger than 1 MiB" in page
    assert BODY_TIMEOUT_S == 60 and "within 60 s" in page
    assert STEPS_MAX == 250_000 and "more than 250,000 steps" in page
    assert TIME_MS_MAX == 5_000 and "compared within 5 s" in page
    assert WRITER_WAIT_S == 5 and "up to 5 seconds" in page
