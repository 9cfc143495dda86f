"""Brokers with one rule broken, to show that a run finds it. For tests only.

    python -m conformance.faults --mutant acks-early --play kill-cut-leader

A broker of such a run is `python -m conformance.faults.mutants NAME serve ...`. The rule is patched
in its process before it starts (`conformance.histories.mutants`, whose mutants may be named, too).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from conformance.histories.mutants import MUTANTS as ONE_BROKER
from conformance.histories.mutants import patch, serve


def _acks_early() -> None:
    """Acknowledge acks=all when the leader has the records, as with acks=1."""
    from odradek.broker.requests.repeated_produce import RepeatedProduce
    from odradek.replication import record_append

    later = RepeatedProduce._respond_later

    def respond(handler: Any, request: Any, required: Any, response: Any) -> Any:
        return response if response is not None else later(handler, request, required, None)

    patch(record_append.RecordAppend, "_require", lambda *_: None)
    patch(RepeatedProduce, "_respond_later", respond)


def _silent_session() -> None:
    """Send no pings to ZooKeeper. A session without other requests expires."""
    from kazoo.protocol.connection import ConnectionHandler

    patch(ConnectionHandler, "_send_ping", lambda *_: None)


MUTANTS: dict[str, Callable[[], None]] = {
    "acks-early": _acks_early,
    "silent-session": _silent_session,
    **{name: mutant.apply for name, mutant in ONE_BROKER.items()},
}


def program(name: str) -> Sequence[str]:
    """Return the arguments of the Python interpreter that run `odradek` with a mutant."""
    return ("-m", "conformance.faults.mutants", name)


if __name__ == "__main__":
    serve(MUTANTS[sys.argv[1]], sys.argv[2:])
