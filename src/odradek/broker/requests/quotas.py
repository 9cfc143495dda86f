"""Byte quotas: the rates at which clients send and fetch, and the pauses that enforce the limits.

The module is pure: each call takes the current time. The sliding window of samples, the choice of
the quota for a client, and the length of a pause follow Kafka (``ClientQuotaManager``, ``Rate``,
``SampledStat``). If the client sends nothing during the pause, its rate over the window falls to
the quota.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.metadata.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
    QuotaChanges,
)

# Maximum number of windows, one for each client. The least recently used are removed first.
WINDOWS_MAX = 10_000
# Maximum number of characters in the names of these clients. A client id may have 32,767.
WINDOW_NAME_CHARACTERS_MAX = 4_000_000

_DEFAULT = None
Group = tuple[str, str]  # clients that share a window, by (user, client id); "" matches all


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


class SlidingWindow:
    """A rate over `count` samples of `length_ms` each. The newest sample is incomplete."""

    __slots__ = ("_count", "_current", "_length_ms", "_samples")

    def __init__(self, count: int, length_ms: int) -> None:
        self._count = count
        self._length_ms = length_ms
        # One sample more than the window has, because the oldest may overlap the window's start.
        self._samples: list[_Sample] = []
        self._current = 0

    def add(self, value: float, now_ms: int) -> None:
        """Add `value` to the sample of `now_ms`."""
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
        """Return the rate per second and the length of the measured interval in milliseconds."""
        self._purge(now_ms)
        elapsed_ms = now_ms - min((each.start_ms for each in self._samples), default=now_ms)
        full = elapsed_ms // self._length_ms
        # Count a window that has just begun as a full one. Otherwise its rate would be huge.
        elapsed_ms += max(self._count - 1 - full, 0) * self._length_ms
        elapsed_ms = max(elapsed_ms, 1)
        return sum(each.value for each in self._samples) * 1000 / elapsed_ms, elapsed_ms

    def _purge(self, now_ms: int) -> None:
        for index, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= self._count * self._length_ms:
                self._samples[index] = _Sample(now_ms, now_ms)


class ByteQuota:
    """One kind of quota for all clients.

    `enabled` is False while no client has a quota of this kind. Callers check it first.
    """

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
        # In the order of their last use, the least recently used first.
        self._windows: dict[Group, SlidingWindow] = {}
        self._name_characters = 0

    def update(self, changed: QuotaChanges) -> None:
        """Change the limits of some entities. Keep the counted bytes."""
        for entity, values in changed.items():
            names = dict(entity)
            user: tuple[str | None, ...] = (USER, names[USER]) if USER in names else ()
            client = (CLIENT_ID, names[CLIENT_ID]) if CLIENT_ID in names else ()
            if values is not None and self._key in values:
                self._limits[user + client] = values[self._key]
            else:
                self._limits.pop(user + client, None)
        self.enabled = bool(self._limits)
        if not self.enabled:
            self._windows.clear()
            self._name_characters = 0

    def limit(self, user: str, client_id: str) -> tuple[float, Group] | None:
        """Return the limit in bytes a second and the group of clients that share it.

        The most specific entity that has a quota applies. Return None if none has one.
        """
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
        """Count `size_bytes`. Return for how many milliseconds the client must pause."""
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
        """Subtract bytes that were counted and will not be sent."""
        found = self.limit(user, client_id)
        if found is not None:
            self._window(found[1]).add(-size_bytes, now_ms)

    def burst_bytes(self, user: str, client_id: str) -> int | None:
        """Return how many bytes a client may get after a pause of a whole window.

        Return None if the client has no limit.
        """
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
    """The byte quotas of this broker, for the bytes that clients send and that they fetch."""

    __slots__ = ("fetch", "produce")

    def __init__(self, sample_count: int, sample_ms: int) -> None:
        self.produce = ByteQuota(PRODUCER_BYTE_RATE, sample_count, sample_ms)
        self.fetch = ByteQuota(CONSUMER_BYTE_RATE, sample_count, sample_ms)

    def update(self, changed: QuotaChanges) -> None:
        """Change the limits of some entities."""
        self.produce.update(changed)
        self.fetch.update(changed)
