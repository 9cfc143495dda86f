"""Handlers know of a client only the fields of the request context."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.broker import handlers
from odradek.broker.requests import quotas, throttling
from odradek.broker.requests.context import RequestContext
from odradek.net.session import Principal
from tests.helpers.mock_transport import open_connection
from tests.net.support import run

HANDLERS = sorted(Path(handlers.__path__[0]).glob("*.py"))
QUOTAS = [Path(str(module.__file__)) for module in (quotas, throttling)]


@pytest.mark.parametrize("path", HANDLERS + QUOTAS, ids=lambda path: path.name)
def test_handlers_and_quotas_do_not_use_the_connection(path: Path) -> None:
    code = re.sub(r"^(from|import) .*$", "", path.read_text(), flags=re.MULTILINE)
    assert not re.search(r"\bconnection\.[a-z]|\.connection\b", code)


def test_a_request_keeps_the_session_of_its_arrival() -> None:
    async def main() -> None:
        connection, _ = open_connection(lambda _, view: [])
        context = RequestContext(0, 9, 1, "client", connection)
        before = connection.session
        connection.session = before._replace(principal=Principal("User", "alice"))
        assert context.session is before

    run(main())
