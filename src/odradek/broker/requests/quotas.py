"""Byte quotas: how much each client has sent or fetched of late, and for how long it must pause.

Pure: time comes in with every call. What is counted over a sliding window of samples, which quota
applies to whom, and how long a pause is are Kafka's (``ClientQuotaManager``, ``Rate``,
``SampledStat``): the pause brings the rate over the window down to the quota if nothing is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.metadata.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
    Quotas,
)

# How many clients' windows are kept; those that were not used for longest are forgotten first.
WINDOWS_MAX = 10_000
# The characters of the names of these clients: a client id may have 32,767.
WINDOW_NAME_CHARACTERS_MAX = 4_000_000

_DEFAULT = None
Group = tuple[str, str]  # (user, client id) that share a window; "" is "any"


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SlidingWindow:
    """The rate over `count` samples of `length_ms`, the newest of them unfinished."""

    __slots__ = ("_count", "_current", "_length_ms", "_samples")

    def __init__(self, count: int, length_ms: int) -> None:
        self._count = count
        self._length_ms = length_ms
        # One more than the window has: the oldest may overlap its beginning.
        self._samples: list[_Sample] = []
        self._current = 0

    def add(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms, now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._length_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._count + 1)
        fresh = _Sample(now_ms, now_ms)
        if self._current == len(self._samples):
            self._samples.append(fresh)
        else:
            self._samples[self._current] = fresh
        return fresh

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate a second, and the milliseconds that it is taken over."""
        self._purge(now_ms)
        elapsed_ms = now_ms - min((each.start_ms for each in self._samples), default=now_ms)
        full = elapsed_ms // self._length_ms
        # A window that has just begun counts as a full one, or its rate would be huge.
        elapsed_ms += max(self._count - 1 - full, 0) * self._length_ms
        elapsed_ms = max(elapsed_ms, 1)
        return sum(each.value for each in self._samples) * 1000 / elapsed_ms, elapsed_ms

    def _purge(self, now_ms: int) -> None:
        for index, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= self._count * self._length_ms:
                self._samples[index] = _Sample(now_ms, now_ms)


class ByteQuota:
    """One kind of quota for all clients. `enabled` is False while nobody has one: ask it first."""

    __slots__ = (
        "_key",
        "_limits",
        "_name_characters",
        "_sample_count",
        "_sample_ms",
        "_windows",
        "enabled",
    )

    def __init__(self, key: str, sample_count: int, sample_ms: int) -> None:
        self.enabled = False
        self._key = key
        self._sample_count = sample_count
        self._sample_ms = sample_ms
        self._limits: dict[tuple[str | None, ...], float] = {}
        # In the order of their last use, longest ago first.
        self._windows: dict[Group, SlidingWindow] = {}
        self._name_characters = 0

    def update(self, quotas: Quotas) -> None:
        """Takes over the quotas of the cluster; what was counted stays."""
        self._limits = {}
        for entity, values in quotas.items():
            if self._key in values:
                names = dict(entity)
                user: tuple[str | None, ...] = (USER, names[USER]) if USER in names else ()
                client = (CLIENT_ID, names[CLIENT_ID]) if CLIENT_ID in names else ()
                self._limits[user + client] = values[self._key]
        self.enabled = bool(self._limits)
        if not self.enabled:
            self._windows.clear()
            self._name_characters = 0

    def limit(self, user: str, client_id: str) -> tuple[float, Group] | None:
        """Bytes a second, and who shares them; None without a limit. The closest entity wins."""
        both = (user, client_id)
        candidates: list[tuple[tuple[str | None, ...], Group]] = []
        if client_id:
            candidates += [
                ((USER, user, CLIENT_ID, client_id), both),
                ((USER, user, CLIENT_ID, _DEFAULT), both),
            ]
        candidates.append(((USER, user), (user, "")))
        if client_id:
            candidates += [
                ((USER, _DEFAULT, CLIENT_ID, client_id), both),
                ((USER, _DEFAULT, CLIENT_ID, _DEFAULT), both),
            ]
        candidates.append(((USER, _DEFAULT), (user, "")))
        if client_id:
            candidates += [
                ((CLIENT_ID, client_id), ("", client_id)),
                ((CLIENT_ID, _DEFAULT), ("", client_id)),
            ]
        for entity, group in candidates:
            if entity in self._limits:
                return self._limits[entity], group
        return None

    def record(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> int:
        """Counts bytes; for how many milliseconds the client must pause."""
        found = self.limit(user, client_id)
        if found is None:
            return 0
        limit, group = found
        window = self._window(group)
        window.add(size_bytes, now_ms)
        rate, window_ms = window.measure(now_ms)
        if rate <= limit:
            return 0
        return int((rate - limit) / limit * window_ms + 0.5)

    def unrecord(self, user: str, client_id: str, size_bytes: int, now_ms: int) -> None:
        """Takes back what was counted and is not sent after all."""
        found = self.limit(user, client_id)
        if found is not None:
            self._window(found[1]).add(-size_bytes, now_ms)

    def burst_bytes(self, user: str, client_id: str) -> int | None:
        """What a client may have at once after a pause of a whole window; None without a limit."""
        found = self.limit(user, client_id)
        if found is None:
            return None
        return int(found[0] * (self._sample_count - 1) * self._sample_ms / 1000)

    def _window(self, group: Group) -> SlidingWindow:
        window = self._windows.pop(group, None)
        if window is None:
            self._name_characters += len(group[0]) + len(group[1])
            while self._windows and (
                len(self._windows) >= WINDOWS_MAX
                or self._name_characters > WINDOW_NAME_CHARACTERS_MAX
            ):
                oldest = next(iter(self._windows))
                self._name_characters -= len(oldest[0]) + len(oldest[1])
                del self._windows[oldest]
            window = SlidingWindow(self._sample_count, self._sample_ms)
        self._windows[group] = window
        return window


class ClientQuotas:
    """The byte quotas of this broker: what clients send, and what they fetch."""

    __slots__ = ("fetch", "produce")

    def __init__(self, sample_count: int, sample_ms: int) -> None:
        self.produce = ByteQuota(PRODUCER_BYTE_RATE, sample_count, sample_ms)
        self.fetch = ByteQuota(CONSUMER_BYTE_RATE, sample_count, sample_ms)

    def update(self, quotas: Quotas) -> None:
        self.produce.update(quotas)
        self.fetch.update(quotas)
