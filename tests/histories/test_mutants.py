"""Real clients against a real broker, without a change and with a rule broken in its process."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.harness import Skip
from conformance.histories.analysis import achieved, idle, render
from conformance.histories.clients import command_of
from conformance.histories.managed_broker import BrokerEnded
from conformance.histories.mutants import CALLED, MISFIT, MUTANTS, command
from conformance.histories.run import PARTITIONS, TOPICS, Plan, parse_clients, run

SECONDS = 6.0
ATTEMPTS = 20


def test_odradek_gives_nothing_that_kafka_forbids(tmp_path: Path, seed: int) -> None:
    plan = Plan(seed=seed, seconds=SECONDS, start="odradek")
    report = run(plan, tmp_path / "run", tmp_path / "history.jsonl")
    assert not report.forbidden, render(report)
    assert not idle(report.history)
    assert achieved(report.history) == {"txn", "send", "poll"}
    assert report.history.complete


def test_leaders_are_killed_without_a_proxy_and_replicas_are_compared(
    tmp_path: Path, seed: int
) -> None:
    """One broker without ZooKeeper is the smallest cluster."""
    plan = Plan(
        seed=seed,
        seconds=SECONDS,
        start="odradek",
        brokers=1,
        kills=1,
        faults=(),
        clients={"producer": 1, "plain": 1, "consumer": 1},
    )
    report = run(plan, tmp_path / "run", tmp_path / "history.jsonl")
    assert not report.forbidden, render(report)
    assert [fault["f"] for fault in report.history.faults] == ["leader-kill"]
    assert len(report.history.replicas) == PARTITIONS * TOPICS
    assert report.history.complete


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, tmp_path: Path, seed: int) -> None:
    """The checker finds the mutant within several attempts.

    The seed determines the operations but not their interleaving. Later attempts are longer, for
    machines on which few operations happen.
    """
    mutant = MUTANTS[name]
    _need(parse_clients(mutant.clients))
    found: set[str] = set()
    for attempt in range(ATTEMPTS):
        plan = Plan(
            seed=seed + attempt,
            seconds=SECONDS * (1 + attempt // 3),
            start=command(name),
            mode=mutant.mode,
            faults=mutant.faults,
            clients=parse_clients(mutant.clients),
            abort_share=0.3,
            stable_s=30.0,  # some mutants are found by a stuck partition
        )
        report = run(plan, tmp_path / f"{attempt}", tmp_path / f"{attempt}.jsonl")
        assert not idle(report.history), "it is out of order, and not in one rule"
        assert _was_called(tmp_path / f"{attempt}"), "the mutant is harmless: nothing calls it"
        found |= report.kinds
        if found & mutant.found_by:
            return
    raise AssertionError(f"{mutant.what}: not found, only {found}")


@pytest.mark.timeout(180)
def test_a_mutant_that_does_not_fit_the_code_ends_the_run_with_its_exception(
    tmp_path: Path, seed: int
) -> None:
    """Otherwise the run would last an hour, and the harness would wait 300 s for a success."""
    clients = parse_clients(MISFIT.clients)
    plan = Plan(seed=seed, seconds=3600, start=command(MISFIT.name), clients=clients, faults=())
    with pytest.raises(BrokerEnded, match=r"TypeError.*does not fit the code"):
        run(plan, tmp_path / "run", tmp_path / "history.jsonl")


def _was_called(directory: Path) -> bool:
    """Return whether a process of the broker has reached the code of its mutant."""
    return any(
        CALLED in log.read_text("utf-8", "replace")
        for log in (directory / "broker").glob("broker-*.log")
    )


def _need(roles: dict[str, int]) -> None:
    """Skip if a client cannot be built: the program of `txn-v2` needs Go."""
    try:
        for role in roles:
            command_of(role)
    except Skip as reason:
        pytest.skip(str(reason))
