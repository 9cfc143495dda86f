"""Error responses to long requests: they are made and searched in time slices."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek import slicing
from odradek.broker.handlers import elect_leaders
from odradek.broker.requests.apis import Api, Forwarding
from odradek.broker.requests.error_responses import (
    error_response,
    finding_error,
    making_error_response,
)
from odradek.errors import ErrorCode
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.registry import response_class
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_PER_SLICE
from testkit.many_elements import long_requests

ELEMENTS = 10 * ELEMENTS_PER_SLICE
FORWARDED = [each for each in long_requests(ELEMENTS) if each[0].forwarding is not Forwarding.LOCAL]
CODE = ErrorCode.REQUEST_TIMED_OUT


def slices_of(work: Generator[None, None, Any]) -> tuple[int, Any]:
    """Return the number of time slices and the result."""
    slices = 1
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return slices, ended.value
        slices += 1


@pytest.mark.parametrize(("api", "name", "request_"), FORWARDED, ids=[it[1] for it in FORWARDED])
def test_each_element_is_in_some_time_slice(api: Api, name: str, request_: Any) -> None:
    """A response whose body has the error code has no elements."""
    kind, version = response_class(api.key), api.max_version
    slices, response = slices_of(making_error_response(kind, request_, version, CODE))
    assert response == error_response(kind, request_, version, CODE)
    arrays = [value for value in vars_of(response) if isinstance(value, list)]
    elements = sum(map(len, arrays))
    assert slices > elements // ELEMENTS_PER_SLICE - 1
    assert slices_of(finding_error(response, version, CODE))[1]
    slices, found = slices_of(finding_error(response, version, ErrorCode.NOT_CONTROLLER))
    assert not found
    assert slices > elements // ELEMENTS_PER_SLICE - 1


def vars_of(message: Any) -> list[Any]:
    return [getattr(message, name) for name in message.__dataclass_fields__]


def test_some_of_these_responses_have_elements() -> None:
    made = [
        slices_of(making_error_response(response_class(api.key), request, api.max_version, CODE))
        for api, _, request in FORWARDED
    ]
    assert max(slices for slices, _ in made) >= ELEMENTS // ELEMENTS_PER_SLICE


def test_the_partitions_of_an_election_are_collected_in_time_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    slices: list[None] = []
    end_slice = slicing.end_slice

    async def counted() -> None:
        slices.append(None)
        await end_slice()

    monkeypatch.setattr(slicing, "end_slice", counted)

    async def main() -> None:
        async def elect(_: Any, partitions: list[tuple[str, int]]) -> dict[Any, None]:
            assert partitions == [("t", number) for number in range(ELEMENTS)]
            assert len(slices) >= ELEMENTS // ELEMENTS_PER_SLICE - 1
            return dict.fromkeys(partitions)

        controller: Any = SimpleNamespace(elect_leaders=elect)
        topics = [TopicPartitions("t", list(range(ELEMENTS)))]
        request = ElectLeadersRequest(0, topics)
        kind = elect_leaders.ElectionType.PREFERRED
        response = await wait(elect_leaders._elected(controller, request, kind))
        (topic,) = response.replica_election_results
        assert len(topic.partition_result) == ELEMENTS

    asyncio.run(main())
