"""The table of scenarios. The decorator fills it when the package `scenarios` is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.differential.session import Session
from odradek.broker.requests.apis import API_BY_KEY
from odradek.protocol.api_keys import ApiKey

Run = Callable[[Session], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    versions: tuple[int, ...]
    run: Run


SCENARIOS: list[Scenario] = []


def scenario(
    key: ApiKey, *, versions: tuple[int, ...] = (), least: int = 0
) -> Callable[[Run], Run]:
    """Register a function as a scenario of an API.

    The scenario is run at the lowest (at least `least`), a middle and the highest version that
    Odradek serves, or at the versions in the arguments.
    """

    def register(run: Run) -> Run:
        api = API_BY_KEY[key]
        lowest, highest = max(api.min_version, least), api.max_version
        spread = sorted({lowest, (lowest + highest) // 2, highest})
        name = f"{api.handler}.{run.__name__}"
        SCENARIOS.append(Scenario(name, versions or tuple(spread), run))
        return run

    return register
