"""franz-go's released tests, unmodified, from the Go module.

franz-go shares no code with another client. Its tests cover producing, direct consumption, and
metadata changes during both. They run chains of consumer groups whose members join and leave:
classic groups (eager and cooperative, with static members too) and groups of KIP-848. The same
chain also runs with transactions of version 2, which are aborted at random and read committed.
The tests of share groups (`TestShareGroup...`) are left out, because Odradek has no share groups.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from conformance import stacks
from conformance.harness import AFTER_A_KILL, Case, Context, Outcome, Skip, main, repeat

MODULE = Path(__file__).resolve().parent / "released" / "franz_go"
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
# The tests that connect to a broker. The package's unit tests show nothing about a broker.
TESTS = (
    "GroupETL|GroupSimple|TxnEtl|848Regex|Issue|Pause|Direct|AddRemove|ConsumeTopic|ConsumeRegex$|"
    "HookPollStart$|Pooling|Client_Produce|UnknownGroup|Ping$|ConsumeMaxDecompress"
)
SUITE_TIMEOUT_S = 900.0
RECORDS = 50_000
RECORDS_KILLS = 10_000
"""The same while brokers are killed. With `RECORDS`, the chains of groups took longer than
`SUITE_TIMEOUT_S`: after each kill the groups wait for a new coordinator."""
RACES = ("Test848RegexBrokerResolves",)
"""Tests with a race of their own. On three brokers this one failed in 5 of 30 runs with Kafka,
and in 8 of 30 with Odradek. It counts topics of which it has seen a record, `__consumer_offsets`
included, and then expects records of two others."""
VERDICTS = {"pass": "passed", "fail": "failed", "skip": "skipped"}


def _run(context: Context) -> list[Outcome]:
    go = shutil.which("go")
    if go is None:
        raise Skip("franz-go's tests need Go: there is no `go` on the PATH")
    environment = {
        "KGO_SEEDS": context.bootstrap,
        "KGO_TEST_RF": str(context.replicas),
        "KGO_TEST_RECORDS": str(RECORDS_KILLS if context.kills else RECORDS),
        "KGO_LOG_LEVEL": "none",
    }

    def test(pattern: str) -> list[Outcome]:
        options = ["-json", "-count=1", f"-timeout={SUITE_TIMEOUT_S:.0f}s", f"-run={pattern}"]
        command = [go, "test", *options, PACKAGE]
        limit_s = SUITE_TIMEOUT_S + 60
        done = stacks.run(command, cwd=MODULE, environment=environment, timeout_s=limit_s)
        found = _outcomes(done.stdout)
        if done.returncode != 0:
            print(_printed(done.stdout)[-stacks.STACKS_CHARACTERS :], file=sys.stderr)
        if not found:
            reason = (done.stderr or done.stdout)[-300:]
            raise Skip(f"Go could not build franz-go's tests: {reason}")
        return found

    return repeat_failed(test(f"^Test({TESTS})"), test, context.kills)


def repeat_failed(
    outcomes: list[Outcome], test: Callable[[str], list[Outcome]], kills: bool
) -> list[Outcome]:
    """Repeat failed tests alone, until they pass or the limit is reached.

    While brokers are killed, each failed test is repeated. The tests of groups fail at the first
    error that a poll returns. A connection refused at the address of a killed broker is such an
    error. Without kills the tests of `RACES` are repeated. A test with subtests fails
    when one of them failed after its repetitions.

    Args:
        outcomes: The results of all tests and subtests.
        test: Run the tests of a pattern. Return the results, also those of the parents.
        kills: Whether brokers are killed.
    """
    cause = AFTER_A_KILL if kills else "for a race of the test"
    failed = {each.name for each in outcomes if each.outcome == "failed"}
    parents = {name for name in failed if any(other.startswith(f"{name}/") for other in failed)}

    def again(each: Outcome) -> Outcome:
        if each.name not in failed - parents or not (kills or each.name in RACES):
            return each

        def run() -> Outcome:
            pattern = "/".join(f"^{part}$" for part in each.name.split("/"))
            return _summary(each, test(pattern))

        return repeat(each, run, cause)

    repeated = [again(each) for each in outcomes]
    still = {each.name for each in repeated if each.outcome == "failed"} - parents
    return [
        replace(each, outcome="passed", reason=f"its subtests passed {cause}")
        if each.name in parents and not any(name.startswith(f"{each.name}/") for name in still)
        else each
        for each in repeated
    ]


def _summary(failed: Outcome, outcomes: list[Outcome]) -> Outcome:
    """Return the result of a repetition. It fails if a parent or a subtest failed."""
    wrong = [each for each in outcomes if each.outcome == "failed"]
    found = [each for each in outcomes if each.name == failed.name]
    return (wrong or found or [failed])[0]


def _outcomes(output: str) -> list[Outcome]:
    """Return an outcome for each test and subtest, with the first line of output of a failure."""
    printed: dict[str, list[str]] = {}
    found = []
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        test, action = event.get("Test"), event.get("Action")
        if test and action == "output":
            printed.setdefault(test, []).append(event["Output"].strip())
        elif test and action in VERDICTS:
            said = [text for text in printed.get(test, []) if not text.startswith(("=", "---"))]
            reason = said[0] if said and action != "pass" else ""
            found.append(Outcome(test, VERDICTS[action], event.get("Elapsed", 0.0), reason))
    return found


def _printed(output: str) -> str:
    """Return the output of the tests. After a time limit it has the stacks of all goroutines."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return "".join(event.get("Output", "") for event in events)


CASES = (Case("franz-go", _run, timeout_s=SUITE_TIMEOUT_S + 90),)

if __name__ == "__main__":
    main("franz_go", CASES)
