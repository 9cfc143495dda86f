"""Regular expressions of consumer groups: limits of memory and time, and refusal without work."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import re2

from odradek.coordinator.group.consumer.consumer_group import Resolved
from odradek.coordinator.group.consumer.consumer_records import regex_record
from odradek.coordinator.group.consumer.pattern_matches import NO_MATCHES, PatternMatches
from odradek.coordinator.group.consumer.topic_patterns import (
    COMPILED_BYTES_MAX,
    REFUSED_MAX,
    SLICE_MS,
    TopicPatterns,
)
from odradek.coordinator.regular_expressions import (
    EXPRESSION_BYTES_MAX,
    EXPRESSION_CHARACTERS_MAX,
    REPETITIONS_MAX,
    UNICODE_CLASSES_MAX,
    compile_expression,
)
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from odradek.result_tasks import wait
from odradek.slicing import run_to_completion
from tests.coordinator.group.consumer.consumer_machine import ConsumerMachine, assignment_in
from tests.coordinator.group.on_disk import coordinator, image_of, topic
from tests.coordinator.group.test_group_coordinator import CLIENT
from tests.helpers.event_loop import on_loop

E = ErrorCode
# RE2 accepts this expression within its usual limits: 6.5 MB, and 131 ms on the event loop.
LARGE = r"(\pL{1,400}7)"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every expression that RE2 compiles during the test."""
    compiled: list[str] = []
    compile_now = re2.compile

    def counted(pattern: str, options: Any = None) -> Any:
        compiled.append(pattern)
        return compile_now(pattern, options)

    monkeypatch.setattr(re2, "compile", counted)
    return compiled


def match(service: TopicPatterns, *regexes: str, names: tuple[str, ...] = ("a",)) -> PatternMatches:
    return run_to_completion(service.match(regexes, names, NO_MATCHES))


@pytest.mark.parametrize(
    "costly",
    [
        LARGE,
        r"\pL" * (UNICODE_CLASSES_MAX + 1),
        "a{0,1000}" * 8,
        "a{1}" * (REPETITIONS_MAX + 1),
        "a" * (EXPRESSION_CHARACTERS_MAX + 1),
        r"(\pN\pL\pM){50}",
        "[^\\pN]{1,900}",
    ],
)
def test_costly_expression_is_refused_with_kafkas_error(costly: str) -> None:
    machine = ConsumerMachine()
    with pytest.raises(KafkaError) as refused:
        machine.join("a", subscribed_topic_names=None, subscribed_topic_regex=costly)
    assert refused.value.code is E.INVALID_REGULAR_EXPRESSION
    assert "is not a valid regular expression" in str(refused.value.message)
    assert not machine.log, "nothing is written"


@pytest.mark.parametrize(
    "usual",
    [
        ".*",
        "^[a-zA-Z0-9._-]+$",
        r"(orders|payments|users)\..*\.v[0-9]+",
        r"\pL+-.*",
        r"\w{1,20}-\d{1,10}.*",
        "|".join(f"topic-{number}" for number in range(80)),
        "(?i)metrics.*",
    ],
)
def test_usual_expressions_are_accepted(usual: str) -> None:
    assert not match(TopicPatterns(ManualClock()), usual).refused


def test_refused_expression_is_compiled_once(compilations: list[str]) -> None:
    service = TopicPatterns(ManualClock())
    for _ in range(3):
        assert match(service, "a(?=b)", LARGE).refused.keys() == {"a(?=b)", LARGE}
    assert compilations == ["a(?=b)", LARGE]


def test_expression_over_the_limits_is_never_compiled(compilations: list[str]) -> None:
    service = TopicPatterns(ManualClock())
    match(service, "a" * (EXPRESSION_CHARACTERS_MAX + 1), "a{1}" * (REPETITIONS_MAX + 1))
    match(service, r"\PL" * (UNICODE_CLASSES_MAX + 1))
    assert compilations == []


def test_memory_of_all_compiled_expressions_is_bounded(compilations: list[str]) -> None:
    service = TopicPatterns(ManualClock())
    kept = COMPILED_BYTES_MAX // EXPRESSION_BYTES_MAX
    regexes = [f"topic-{number}" for number in range(kept + 1)]
    match(service, *regexes)
    assert len(service._compiled) == kept
    match(service, regexes[-1])
    assert len(compilations) == kept + 1
    match(service, regexes[0])
    assert compilations[-1] == regexes[0], "the one that was not used for longest is dropped"
    match(service, *(f"({number}" for number in range(REFUSED_MAX + 5)))
    assert len(service._refused) == REFUSED_MAX


def test_the_library_itself_keeps_no_expression() -> None:
    match(TopicPatterns(ManualClock()), "some.*topic")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_program_of_every_accepted_expression_is_small() -> None:
    """RE2 counts instructions of 16 bytes. Accepted random expressions stay below the limit."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    atoms = [
        "a",
        ".",
        r"\w",
        r"\pL",
        "[^a]",
        "(?i:k)",
        "x{0,30}",
        "(?:yz){1,9}",
        "[^\u0100-\uffff]",
    ]
    accepted = 0
    for _ in range(300):
        regex = "".join(
            chance.choice(atoms) + chance.choice(["", "*", "?", "|"]) for _ in range(24)
        )
        try:
            compiled = compile_expression(regex)
        except ValueError:
            continue
        accepted += 1
        assert compiled.programsize * 8 <= EXPRESSION_BYTES_MAX, regex  # type: ignore[attr-defined]
    assert accepted


# -- time slices -----------------------------------------------------------------------------------


class TickingClock(ManualClock):
    """A clock on which each reading takes 0.1 ms."""

    def __init__(self) -> None:
        super().__init__()
        self._readings = 0

    def monotonic_ms(self) -> float:
        self._readings += 1
        return self._readings * 0.1


def test_matching_yields_after_each_time_slice() -> None:
    service = TopicPatterns(TickingClock())
    names = [f"t{number}" for number in range(1_000)]
    slices = list(service.match(["t1.*", "t2.*"], names, NO_MATCHES))
    assert len(slices) > 2 * 1_000 * 0.1 / SLICE_MS * 0.5


@on_loop
async def test_other_requests_are_served_while_topics_are_matched(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        many = [topic(f"t{n}", bytes([n % 256, n // 256]) * 8) for n in range(1, 301)]
        state.image = image_of(*state.image.topics_by_name.values(), *many)
        state.groups.consumers._patterns = TopicPatterns(TickingClock())
        slices = 0

        async def count() -> None:
            nonlocal slices
            while True:
                slices += 1
                await asyncio.sleep(0)

        others = asyncio.ensure_future(count())
        request = ConsumerGroupHeartbeatRequest(
            "g",
            "a",
            0,
            topic_partitions=[],
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex="t[0-9]+",
        )
        pending = state.groups.consumers.heartbeat(request, CLIENT, 1)
        assert not pending.executed
        response: Any = await wait(pending)
        others.cancel()
        assert slices > 10
        assert response.error_code == E.NONE
        assert len(response.assignment.topic_partitions) == 300


# -- groups ----------------------------------------------------------------------------------------


def test_known_topics_are_not_matched_again() -> None:
    machine = ConsumerMachine()
    machine.set_topics(ab=1, abc=1)
    machine.join("a", subscribed_topic_names=None, subscribed_topic_regex="ab.?")
    machine.patterns = None  # type: ignore[assignment]
    machine.join("b", subscribed_topic_names=None, subscribed_topic_regex="ab.?")
    machine.beat("a", 1, {})
    machine.fence("b")
    assert set(machine.group.regexes) == {"ab.?"}


def test_stored_expression_that_is_refused_now_keeps_its_topics() -> None:
    """An earlier version accepted the expression. The group must continue for all members."""
    machine = ConsumerMachine()
    machine.set_topics(ab=1, t=1)
    machine.join("a", subscribed_topic_names=None, subscribed_topic_regex="ab")
    member = replace(machine.group.members["a"], regex=LARGE)
    machine.group.members["a"] = member
    machine.replay([regex_record("g", LARGE, Resolved(frozenset({"ab"}), 0, 0))])
    machine.group.seen_metadata = -1
    machine.join("b", "t")
    assert machine.group.regexes[LARGE].topics == {"ab"}
    assert assignment_in(machine.beat("b", 2)) in (None, {"t": {0}})
