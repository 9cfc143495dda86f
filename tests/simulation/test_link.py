from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.link import Frames
from tests.simulation.network import SendTimes


@given(st.lists(st.integers(0, 40)), st.data())
def test_the_ends_of_frames_do_not_depend_on_the_pieces(
    sizes: list[int], data: st.DataObject
) -> None:
    stream, ends = b"", []
    for size in sizes:
        stream += size.to_bytes(4, "big") + bytes(size)
        ends.append(len(stream))
    frames, found = Frames(), []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        found += frames.ends(stream[:count])
        stream = stream[count:]
    assert found == ends


def test_the_step_of_a_byte_is_that_in_which_it_was_sent() -> None:
    times = SendTimes()
    for count, step in ((3, 10), (2, 11), (5, 20)):
        times.sent(count, step)
    assert [times.step_of(end) for end in (1, 3, 4, 5, 6, 10)] == [10, 10, 11, 11, 20, 20]
