"""The size before each frame."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import frame_size, pack_size


@pytest.mark.parametrize("size", [0, 1, 104_857_600])
def test_sizes_up_to_the_limit_are_read_as_written(size: int) -> None:
    assert frame_size(b"xx" + pack_size(size), 2, 104_857_600) == size


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_sizes_below_zero_and_above_the_limit_are_malformed(size: int) -> None:
    with pytest.raises(MalformedMessage, match=f"invalid frame size {size}, the limit is 100"):
        frame_size(pack_size(size), 0, 100)
