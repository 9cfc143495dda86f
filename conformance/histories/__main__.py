"""The checker as a suite: each case runs the workload and checks the history.

`python -m conformance.histories --bootstrap-server HOST:PORT` uses that broker without killing it.
With `--broker odradek` (or kafka) other cases also start a broker and kill it.
"""

from __future__ import annotations

from random import Random
from time import monotonic

from conformance.harness import Case, Context, Outcome, Skip, main
from conformance.histories.analysis import counts, idle, render
from conformance.histories.nemesis import FAULTS
from conformance.histories.run import CLIENTS, GO_ON_S, MIXED, Plan, run
from testkit.peer.artifacts import CACHE

# The time limit for the end of a case: the final reads and the check, after all operations.
END_S = 900


def _faults(broker: str | None) -> tuple[str, ...]:
    """Return the faults of a run. Runs on Apache Kafka leave out the stop of the broker.

    Apache Kafka 4.3.0 loses markers when it is stopped (docs/histories.md). A failure of Kafka
    would excuse the same failure of Odradek.
    """
    return tuple(fault for fault in FAULTS if (broker, fault) != ("kafka", "broker-stop"))


def _case(
    name: str,
    *,
    killed: bool,
    seconds: float,
    mode: str,
    ci: bool = False,
    clients: dict[str, int] = CLIENTS,
) -> Case:
    def body(context: Context) -> list[Outcome]:
        if killed and context.broker is None:
            raise Skip("needs --broker, the name of a broker that may be killed")
        plan = Plan(
            seed=Random().randrange(1 << 31),
            seconds=seconds,
            start=context.broker if killed else None,
            bootstrap=context.bootstrap,
            mode=mode,
            faults=_faults(context.broker),
            clients=clients,
            keep=CACHE,
        )
        return [_checked(name, plan, context)]

    return Case(name, body, ci=ci, timeout_s=seconds + GO_ON_S + END_S)


def _checked(name: str, plan: Plan, context: Context) -> Outcome:
    began = monotonic()
    report = run(plan, context.work / "run", context.work / "history.jsonl")
    numbers = counts(report.history)
    summary = (
        f"seed {plan.seed}: {numbers['operations']:,} operations, "
        f"{len(report.history.faults)} faults"
    )
    if report.forbidden:
        print(render(report))
        kinds = ", ".join(sorted(report.kinds))
        raise AssertionError(f"{summary}, {kinds}; kept as {plan.kept_as}")
    if idle(report.history):
        raise AssertionError(f"{summary}, but no {' and no '.join(idle(report.history))} succeeded")
    if not report.history.complete:
        raise AssertionError(f"{summary}, and not everything could be read in the end")
    return Outcome(name, "passed", monotonic() - began, summary)


CASES = (
    _case("clients killed, at this address", killed=False, seconds=5, mode="both", ci=True),
    _case("broker, network and clients", killed=True, seconds=12, mode="both", ci=True),
    _case("broker, network and clients: assign", killed=True, seconds=40, mode="assign"),
    _case("broker, network and clients: subscribe", killed=True, seconds=40, mode="subscribe"),
    _case("both transaction protocols", killed=True, seconds=40, mode="both", clients=MIXED),
)

if __name__ == "__main__":
    main("histories", CASES)
