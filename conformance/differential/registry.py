"""The table of scenarios, filled by the decorator when `conformance.differential.scenarios` is
imported.
"""

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
    """The function is a scenario of this API, at the lowest (but `least`), a middle and the
    highest version that Odradek serves, or at those named.
    """

    def register(run: Run) -> Run:
        api = API_BY_KEY[key]
        lowest, highest = max(api.min_version, least), api.max_version
        spread = sorted({lowest, (lowest + highest) // 2, highest})
        name = f"{api.handler}.{run.__name__}"
        SCENARIOS.append(Scenario(name, versions or tuple(spread), run))
        return run

    return register
