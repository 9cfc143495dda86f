"""Planted bugs: the broker's code with one rule broken, to test the simulator itself.

    python -m tests.simulation.mutants list
    python -m tests.simulation.mutants run NAME --seed N --runs 200

A mutant replaces functions of the product in this process. The product has no switch for it. A
replaced function that does not exist, or is never called, is an error: the mutant would show
nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulation.cluster_mutants import CLUSTER_MUTANTS
from tests.simulation.coordinator_mutants import COORDINATOR_MUTANTS
from tests.simulation.planting import Mutant, Patches
from tests.simulation.simulation import Outcome, Simulation

RUNS_MAX = 200


def _acknowledge_before_fsync(patches: Patches) -> None:
    from odradek.log.unified_log import UnifiedLog

    append = UnifiedLog.append_as_leader

    def commit(log: Any, *arguments: Any, **named: Any) -> Any:
        info = append(log, *arguments, **named)
        if info.must_flush:
            info.must_flush = False
            log.high_watermark = log.log_end_offset
        return info

    patches.replace(UnifiedLog, "append_as_leader", commit)


def _keep_torn_tail(patches: Patches) -> None:
    from odradek.log.segments.log_segment import LogSegment

    recover = LogSegment.recover_to
    patches.replace(
        LogSegment,
        "recover_to",
        lambda segment, size, built: recover(segment, max(size, segment.size), built),
    )


def _forget_recovered_epochs(patches: Patches) -> None:
    from odradek.log.state.leader_epochs import RecoveredLeaderEpochs

    patches.replace(RecoveredLeaderEpochs, "add", lambda *_: None)


def _forget_producers(patches: Patches) -> None:
    from odradek.log import log_loader
    from odradek.log.state.producer_state_manager import ProducerStateManager

    patches.replace(log_loader, "load_producers", lambda *_: ProducerStateManager())


def _recovery_point_too_high(patches: Patches) -> None:
    from odradek.log.log_flusher import LogFlusher

    patches.replace(LogFlusher, "checkpoint_offset", lambda flusher: flusher._log_end_offset())


def _do_not_sync_checkpoints(patches: Patches) -> None:
    from odradek.log.state import checkpoints

    write = checkpoints.write_new_offsets
    patches.replace(
        checkpoints,
        "write_new_offsets",
        lambda files, path, offsets, *, sync: write(files, path, offsets, sync=False),
    )


def _high_watermark_above_end(patches: Patches) -> None:
    from odradek.log.unified_log import UnifiedLog

    create = UnifiedLog.__init__

    def keep(log: Any, *arguments: Any, high_watermark: int, **named: Any) -> None:
        create(log, *arguments, high_watermark=high_watermark, **named)
        log.high_watermark = max(high_watermark, log.log_start_offset)

    patches.replace(UnifiedLog, "__init__", keep)


def _do_not_sync_names(patches: Patches) -> None:
    from odradek.log.log_dir import LogDir

    patches.replace(LogDir, "sync_names", lambda _: None)


def _no_duplicates(patches: Patches) -> None:
    from odradek.errors import ErrorCode, KafkaError
    from odradek.log.state.producer_state_manager import ProducerStateManager

    check = ProducerStateManager.check

    def accept(*arguments: Any, **named: Any) -> None:
        try:
            check(*arguments, **named)
        except KafkaError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise

    patches.replace(ProducerStateManager, "check", accept)


def _keep_torn_write(patches: Patches) -> None:
    from odradek.log.segments.log_segment import LogSegment

    patches.replace(LogSegment, "cut_torn_write", lambda *_: None)


def _read_to_log_end(patches: Patches) -> None:
    from odradek.replication.fetch_data import FetchIsolation
    from odradek.replication.partition import Partition

    read = Partition.read

    def all_records(
        partition: Any, offset: int, size: int, whole: bool, _: Any, *others: Any, **named: Any
    ) -> Any:
        isolation = FetchIsolation.LOG_END
        return read(partition, offset, size, whole, isolation, *others, **named)

    patches.replace(Partition, "read", all_records)


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        *CLUSTER_MUTANTS,
        *COORDINATOR_MUTANTS,
        Mutant(
            "ack-before-fsync",
            "with flush.messages=1 records are acknowledged and committed by the append",
            _acknowledge_before_fsync,
        ),
        Mutant("torn-tail", "recovery keeps a torn batch at the end of a log", _keep_torn_tail),
        Mutant(
            "no-epoch-rebuild",
            "recovery does not add the leader epochs of the batches that it reads",
            _forget_recovered_epochs,
        ),
        Mutant("no-producers", "a start restores no producer state", _forget_producers),
        Mutant(
            "recovery-point-high",
            "the checkpoint has the log end in place of the recovery point",
            _recovery_point_too_high,
        ),
        Mutant(
            "checkpoint-not-synced",
            "offset checkpoints are renamed without a sync",
            _do_not_sync_checkpoints,
        ),
        Mutant(
            "high-watermark-above-end",
            "the high watermark of the checkpoint is not limited by the recovered log end",
            _high_watermark_above_end,
        ),
        Mutant(
            "names-not-synced",
            "a flush does not sync the names of new partition directories",
            _do_not_sync_names,
        ),
        Mutant("no-dedupe", "a batch that comes again is appended again", _no_duplicates),
        Mutant(
            "torn-write",
            "the part of a batch that a full disk took is not cut off",
            _keep_torn_write,
        ),
        Mutant(
            "read-above-high-watermark",
            "consumers read records that are not committed",
            _read_to_log_end,
        ),
    )
}


@contextmanager
def planted(mutant: Mutant) -> Iterator[Patches]:
    """Apply the mutant in the block."""
    patches = Patches()
    try:
        mutant.apply(patches)
        yield patches
    finally:
        patches.undo()


def hunt(mutant: Mutant, seed: int, runs: int = RUNS_MAX) -> tuple[int, Outcome | None]:
    """Run seeds until one finds the mutant. Return the number of runs, and the last outcome.

    The outcome is None if no run has found it.
    """
    with planted(mutant) as patches:
        for number in range(1, runs + 1):
            simulation = Simulation(seed + number - 1, mutant.brokers)
            try:
                outcome = simulation.run()
            finally:
                simulation.close()
            if outcome.violations:
                assert not patches.uncalled, f"{mutant.name}: {patches.uncalled} was not called"
                return number, outcome
    return runs, None


def values_of(name: str, seed: int, runs: int, outcome: Outcome | None) -> dict[str, Any]:
    """Return an attempt for a record (`benchmarks.evidence.planted_bugs`)."""
    found = None if outcome is None else runs
    violation = "" if outcome is None else outcome.violation
    return {"name": name, "seed": seed, "runs": runs, "found_in": found, "violation": violation}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("command", choices=("list", "run"))
    parser.add_argument("names", nargs="*", help="the mutants, or none for all")
    parser.add_argument("--attempts", type=int, default=1, help="each begins 1,000 seeds later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=RUNS_MAX)
    parser.add_argument("--json", action="store_true", help="print each attempt as a JSON object")
    options = parser.parse_args(argv)
    logging.getLogger().handlers = [logging.NullHandler()]
    missed = 0
    for name in options.names or MUTANTS:
        if options.command == "list":
            print(f"{name}: {MUTANTS[name].what}")
            continue
        for attempt in range(options.attempts):
            seed = options.seed + 1_000 * attempt
            runs, outcome = hunt(MUTANTS[name], seed, options.runs)
            missed += outcome is None
            if options.json:
                print(json.dumps(values_of(name, seed, runs, outcome)), flush=True)
            elif outcome is None:
                print(f"{name}: NOT FOUND in {runs} runs from seed {seed} on", flush=True)
            else:
                what = f"seed {outcome.seed}: {outcome.violations[0]}"
                print(f"{name}: found in run {runs}, {what}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
