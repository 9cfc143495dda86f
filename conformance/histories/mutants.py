"""Odradek with one rule broken, to show that the checker finds the defect. For tests only.

Serve a mutant.

    python -m conformance.histories.mutants NAME serve --listen HOST:PORT --data DIR

List the mutants, or run the workload against a mutant.

    python -m conformance.histories.mutants list
    python -m conformance.histories.mutants run NAME [arguments of conformance.histories.run]

The rule is patched in the broker's process before the broker starts. The product has no switch for
it. Each mutant lists the anomalies of which at least one must be found.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule. `faults` and `clients` are those of the run that exposes it."""

    name: str
    what: str
    apply: Callable[[], None]
    found_by: frozenset[str]
    faults: tuple[str, ...]
    clients: str = "txn=4,producer=1,consumer=2"
    mode: str = "both"


def _no_dedupe() -> None:
    from odradek.errors import ErrorCode, KafkaError
    from odradek.log.state.producer_state_manager import ProducerStateManager

    check = ProducerStateManager.check

    def accept(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            check(self, *arguments, **named)
        except KafkaError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise

    patch(ProducerStateManager, "check", accept)


def _no_verification() -> None:
    from odradek.broker.transactions import partition_verification as verification
    from odradek.broker.transactions.partition_verification import Operation
    from odradek.results import Result

    ask = verification.verify

    def believe(services: Any, transaction: Any, sequences: Any, operation: Operation) -> Any:
        if operation is Operation.ADD_PARTITION:
            return ask(services, transaction, sequences, operation)
        return Result(dict.fromkeys(sequences, verification.NOT_VERIFIED))

    patch(verification, "verify", believe)  # its users are imported with their first request


def _lso_high() -> None:
    from odradek.log.unified_log import UnifiedLog

    stable = UnifiedLog.stable_offset
    patch(
        UnifiedLog,
        "stable_offset",
        lambda log, high_watermark: min(stable(log, high_watermark) + 1, high_watermark),
    )


def _no_aborted_list() -> None:
    from odradek.log import unified_log

    patch(unified_log, "aborted_in", lambda *_, **__: [])


def _offsets_of_aborted() -> None:
    from odradek.coordinator.group.offsets.offset_store import OffsetStore

    end = OffsetStore.end_transaction
    patch(
        OffsetStore, "end_transaction", lambda store, producer_id, _: end(store, producer_id, True)
    )


def _no_epoch_bump() -> None:
    """Return the old epoch to the client as the next epoch. The client resets its sequences."""
    from odradek.coordinator.transaction import transaction_decisions as state

    end = state._end_v2

    def keep(current: Any, *arguments: Any) -> Any:
        decision = end(current, *arguments)
        if decision.next is None:
            return decision
        epoch = current.producer_epoch
        # Markers of the first protocol, because partitions check the epochs of the second's.
        prepared = replace(decision.next, producer_epoch=epoch, client_transaction_version=0)
        response = decision.response._replace(producer_epoch=epoch)
        return replace(decision, response=response, next=prepared)

    patch(state, "_end_v2", keep)


def _raise_everywhere() -> None:
    """Fail each Produce request inside the broker. This is for a test of the harness."""
    from odradek.log.unified_log import UnifiedLog

    def fail(*_: Any, **__: Any) -> None:
        raise TypeError("the mutant does not fit the code")

    patch(UnifiedLog, "append_as_leader", fail)


def patch(owner: Any, name: str, instead: Any) -> None:
    """Replace a function. A name that does not exist or is never called must not go unnoticed."""
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    called = False

    def mutated(*arguments: Any, **named: Any) -> Any:
        nonlocal called
        if not called:
            called = True
            print(CALLED, file=sys.stderr, flush=True)
        return instead(*arguments, **named)

    setattr(owner, name, mutated)


class EndBroken(logging.Handler):
    """A log handler that ends the broker when a mutant that does not fit the code logs an error.

    Otherwise every request would fail, and the run would search for anomalies until its time limit.
    """

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, MISFITS):
            text = "".join(traceback.format_exception(error))
            print(f"{text}{record.getMessage()}: {error!r}", file=sys.stderr, flush=True)
            os._exit(BROKEN)


CALLED = "the mutated code is called"
BROKEN = 70
MISFITS = (TypeError, AttributeError, NameError, LookupError, ValueError, AssertionError)
ABORT_SHARE = 0.3
STABLE_S = 30.0
LOST_RESPONSES = ("net-mute", "net-mute", "net-cut")

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "no-dedupe",
            "a batch that comes again is appended again",
            _no_dedupe,
            frozenset({"duplicate"}),
            LOST_RESPONSES,
            clients="producer=4,consumer=2",
        ),
        Mutant(
            "no-verification",
            "transactional batches are appended whether or not their transaction is open",
            _no_verification,
            frozenset({"hanging-transaction", "G1a", "unseen"}),
            ("net-overtake",),
        ),
        Mutant(
            "lso-high",
            "the last stable offset is one too high",
            _lso_high,
            frozenset({"G1a", "precommitted-read"}),
            (),
        ),
        Mutant(
            "no-aborted-list",
            "read_committed fetches do not say what was aborted",
            _no_aborted_list,
            frozenset({"G1a"}),
            (),
        ),
        Mutant(
            "offsets-of-aborted",
            "the offsets of an aborted transaction count",
            _offsets_of_aborted,
            frozenset({"group-skip"}),
            ("client-kill",),
            mode="assign",
        ),
        Mutant(
            "no-epoch-bump",
            "a transaction of the second protocol ends without a new epoch (KIP-890)",
            _no_epoch_bump,
            frozenset({"inconsistent-offsets", "lost-write", "torn-transaction"}),
            (),
            clients="txn-v2=3,consumer=1",
            mode="subscribe",
        ),
    )
}


# Not a broken rule. It is for the tests of the harness.
MISFIT = Mutant(
    "misfit",
    "appends raise TypeError",
    _raise_everywhere,
    frozenset(),
    (),
    clients="producer=1",
)


def command(name: str) -> str:
    """Return the value of `--start` for `conformance.histories.run`."""
    return (
        f"{sys.executable} -m conformance.histories.mutants {name} serve --listen {{address}} "
        "--data {data} --set advertised.listeners={advertised}"
    )


def options(name: str) -> list[str]:
    """Return the arguments of `conformance.histories.run` for a run against a mutant."""
    mutant = MUTANTS[name]
    return [
        *("--start", command(name)),
        *("--clients", mutant.clients),
        *("--mode", mutant.mode),
        *("--faults", ",".join(mutant.faults)),
        *("--abort-share", str(ABORT_SHARE)),
        # Some mutants are found by a last stable offset that does not advance.
        *("--stable-s", str(STABLE_S)),
    ]


def main(argv: list[str]) -> None:
    if argv[:1] == ["list"]:
        for mutant in MUTANTS.values():
            print(f"{mutant.name}: {mutant.what}")
        return
    if argv[:1] == ["run"]:
        from conformance.histories.run import main as run

        sys.exit(run([*options(argv[1]), *argv[2:]]))
    serve({**MUTANTS, MISFIT.name: MISFIT}[argv[0]].apply, argv[1:])


def serve(apply: Callable[[], None], arguments: list[str]) -> None:
    """Apply a mutant to this process, and run `odradek` with these arguments."""
    from odradek.cli.main import main as odradek

    apply()
    for logger in ("odradek", "asyncio"):
        logging.getLogger(logger).addHandler(EndBroken())
    sys.argv = ["odradek", *arguments]
    odradek()


if __name__ == "__main__":
    main(sys.argv[1:])
