"""Futures of what follows from others: they always come to an end."""

from __future__ import annotations

import asyncio

import pytest

from odradek.coordinator.futures import mapped, mapped_done


def run(main):
    return asyncio.run(main())


def test_result_is_what_follows_from_the_other() -> None:
    async def main() -> None:
        first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        doubled = mapped(first, lambda value: value * 2)
        first.set_result(21)
        assert await doubled == 42

    run(main)


def test_failure_of_the_other_and_of_what_follows_fails_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        failing: asyncio.Future[int] = loop.create_future()
        fine: asyncio.Future[int] = loop.create_future()
        after_failure, broken = mapped(failing, str), mapped(fine, lambda value: value // 0)
        failing.set_exception(OSError("the disk"))
        fine.set_result(1)
        with pytest.raises(OSError, match="the disk"):
            await after_failure
        with pytest.raises(ZeroDivisionError):
            await broken

    run(main)


def test_cancelled_with_the_other() -> None:
    async def main() -> None:
        first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        second = mapped(first, str)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

    run(main)


def test_what_follows_happens_though_nobody_waits() -> None:
    async def main() -> None:
        first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        seen: list[int] = []
        gone = mapped_done(first, lambda done: seen.append(done.result()))
        gone.cancel()
        first.set_result(7)
        await asyncio.sleep(0)
        assert seen == [7]

    run(main)
