"""Generator for a day of usage events of a small web shop, reproducible from a seed.

The rate of sessions follows the time of day, with a peak when the newsletter is sent. A session
views pages. Each page shows items (impressions), some items are clicked, and a click leads to the
item's page. One event in `CUT_OFF_ONE_IN` is truncated, as when a browser tab is closed.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SCHEMA = (
    "event_id STRING NOT NULL, type STRING NOT NULL, time TIMESTAMP NOT NULL, session STRING,"
    " user STRING, page STRING NOT NULL, item STRING, position INT, referrer STRING,"
    " device STRING, country STRING"
)
"""Schema of the events in Spark's DDL."""

ONE_MORE = (
    '{"event_id": "one-more", "type": "page_view", "time": "2026-03-03T23:59:59Z", "page": "/"}'
)
"""An event that fits the schema, for the user to send after the demo."""

DAY = datetime(2026, 3, 3, tzinfo=UTC)
MINUTES = 24 * 60
NEWSLETTER_MINUTE = 11 * 60
CUT_OFF_ONE_IN = 4_000

_LANDINGS = ("/", "/sale", "/blog/why-logs-outlive-us", "/search", "/new", "/about")
_PRODUCTS = (
    "/products/star-shaped-spool",
    "/products/spool-of-thread",
    "/products/cotton-thread",
    "/products/silk-thread",
    "/products/wool-yarn",
    "/products/needle-set",
    "/products/thimble",
    "/products/pin-cushion",
    "/products/scissors",
    "/products/tape-measure",
    "/products/buttons",
    "/products/zipper",
    "/products/linen",
    "/products/denim",
    "/products/felt",
    "/products/velvet",
    "/products/lace",
    "/products/ribbon",
    "/products/pattern-paper",
    "/products/tailors-chalk",
    "/products/sewing-box",
    "/products/bobbin",
    "/products/darning-egg",
    "/products/patch-kit",
    "/products/embroidery-hoop",
)
_DEVICES = (("phone", 58), ("desktop", 35), ("tablet", 7))
_COUNTRIES = (("DE", 26), ("US", 22), ("FR", 13), ("GB", 11), ("CZ", 9), ("NL", 8), ("BR", 6))
_REFERRERS = (("search", 44), ("direct", 30), ("newsletter", 10), ("social", 16))
_CLICK_RATE_BY_POSITION = (0.085, 0.05, 0.03, 0.02)


@dataclass(frozen=True, slots=True)
class _Session:
    number: int
    user: str
    device: str
    country: str
    referrer: str

    @property
    def id(self) -> str:
        return f"s{self.number:07d}"


@dataclass(frozen=True, slots=True)
class _Event:
    time_ms: int
    type: str
    session: _Session
    page: str
    item: str | None = None
    position: int | None = None


def usage_events(count: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield `count` events in order of time, as pairs of session id (key) and JSON (value)."""
    rng = random.Random(seed)
    events: list[_Event] = []
    minutes = rng.choices(range(MINUTES), weights=_sessions_per_minute(), k=count // 4 + 1)
    for number, minute in enumerate(minutes):
        if len(events) >= count:
            break
        events.extend(_session_events(rng, number, minute))
    del events[count:]
    events.sort(key=lambda event: event.time_ms)
    for number, event in enumerate(events):
        value = _value(number, event)
        if rng.random() * CUT_OFF_ONE_IN < 1:
            value = value[: rng.randrange(1, len(value))]
        yield event.session.id.encode(), value


def _sessions_per_minute() -> list[float]:
    """Return the weight of each minute: low at night, with a day, an evening and a newsletter."""
    rates = []
    for minute in range(MINUTES):
        hour = minute / 60
        day = 3.0 * math.exp(-(((hour - 13.5) / 4.5) ** 2))
        evening = 2.6 * math.exp(-(((hour - 20.3) / 1.9) ** 2))
        since = minute - NEWSLETTER_MINUTE
        newsletter = 4.0 * math.exp(-since / 25) if since >= 0 else 0.0
        rates.append(0.35 + day + evening + newsletter)
    return rates


def _session_events(rng: random.Random, number: int, minute: int) -> list[_Event]:
    session = _Session(
        number,
        f"u{int(rng.paretovariate(0.9)) % 50_000:05d}",
        _choose(rng, _DEVICES),
        _choose(rng, _COUNTRIES),
        _choose(rng, _REFERRERS),
    )
    events: list[_Event] = []
    at_ms = (minute * 60 + rng.random() * 60) * 1000
    page = _popular(rng, _LANDINGS if rng.random() < 0.7 else _PRODUCTS)
    for _ in range(min(12, 1 + int(rng.expovariate(1 / 2.2)))):
        events.append(_Event(int(at_ms), "page_view", session, page))
        clicked = _impressions(rng, session, page, at_ms, events)
        at_ms += 3_000 + rng.expovariate(1 / 25_000)
        page = clicked or _popular(rng, _PRODUCTS)
    last_ms = MINUTES * 60_000 - 1
    return [event for event in events if event.time_ms <= last_ms]


def _impressions(
    rng: random.Random, session: _Session, page: str, at_ms: float, events: list[_Event]
) -> str | None:
    """Add the page's impressions and its click to `events`. Return the clicked item, if any."""
    clicked = None
    for position in range(rng.randint(1, len(_CLICK_RATE_BY_POSITION))):
        item = _popular(rng, _PRODUCTS)
        shown_ms = int(at_ms + 200 + rng.random() * 800)
        events.append(_Event(shown_ms, "impression", session, page, item, position))
        if clicked is None and rng.random() < _CLICK_RATE_BY_POSITION[position]:
            clicked = item
            click_ms = int(shown_ms + 500 + rng.expovariate(1 / 4_000))
            events.append(_Event(click_ms, "click", session, page, item, position))
    return clicked


def _choose(rng: random.Random, weighted: tuple[tuple[str, int], ...]) -> str:
    names, weights = zip(*weighted, strict=True)
    chosen: str = rng.choices(names, weights=weights)[0]
    return chosen


def _popular(rng: random.Random, pages: tuple[str, ...]) -> str:
    """Return one of `pages`; earlier pages are more likely than later ones."""
    return pages[min(int(rng.paretovariate(0.8)) - 1, rng.randrange(len(pages)))]


def _value(number: int, event: _Event) -> bytes:
    session = event.session
    fields: dict[str, object] = {
        "event_id": f"e{number:09d}",
        "type": event.type,
        "time": (DAY + timedelta(milliseconds=event.time_ms)).isoformat(timespec="milliseconds"),
        "session": session.id,
        "user": session.user,
        "page": event.page,
        "referrer": session.referrer,
        "device": session.device,
        "country": session.country,
    }
    if event.item is not None:
        fields |= {"item": event.item, "position": event.position}
    return json.dumps(fields, separators=(",", ":")).encode()
