"""Reading Spark's checkpoint, without Spark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.checkpoint import Checkpoint, ranges_between
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.progress import Offsets

PATH = "/lake/checkpoint"


class FilesInMemory:
    """The files of a checkpoint by their path below it."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = {f"{PATH}/{name}": text for name, text in texts.items()}

    def exists(self, path: str) -> bool:
        return path in self._texts

    def list_names(self, path: str) -> list[str]:
        return [
            name.removeprefix(f"{path}/") for name in self._texts if name.startswith(f"{path}/")
        ]

    def read_text(self, path: str) -> str:
        return self._texts[path]


def checkpoint_with(texts: dict[str, str]) -> Checkpoint:
    return Checkpoint(FilesInMemory(texts), PATH)


def planned(offsets: Offsets) -> str:
    """A file of offsets/, as Spark 4.0 writes it."""
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    return f"v1\n{metadata}\n{json.dumps(offsets)}"


def initial(offsets: Offsets) -> str:
    """The file of sources/0, as Spark 4.0 writes it."""
    return f"\0v1\n{json.dumps(offsets)}"


BATCHES = {
    "metadata": '{"id":"q"}',
    "sources/0/0": initial({"t": {"0": 5, "1": 0}}),
    "offsets/0": planned({"t": {"0": 9, "1": 0}}),
    "offsets/1": planned({"t": {"0": 9, "1": 4}, "u": {"0": 2}}),
    "offsets/2": planned({"t": {"0": 3, "1": 4, "2": 0}, "u": {"0": 2}}),
    "commits/0": "v1\n{}",
    "commits/1": "v1\n{}",
}


@pytest.mark.parametrize(
    ("batch_id", "ranges"),
    [
        (0, (PlannedRange("t", 0, 5, 9),)),
        (1, (PlannedRange("t", 1, 0, 4), PlannedRange("u", 0, 0, 2))),
        (2, ()),
    ],
    ids=["from the initial offsets", "with a new topic", "without offsets"],
)
def test_batch_is_planned_from_the_end_of_the_batch_before(
    batch_id: int, ranges: tuple[PlannedRange, ...]
) -> None:
    assert checkpoint_with(BATCHES).planned_ranges(batch_id) == ranges


@pytest.mark.parametrize(
    ("missing", "batch_id"), [("sources/0/0", 0), ("offsets/0", 1), ("offsets/2", 2)]
)
def test_missing_plan_is_an_error_that_names_the_file(missing: str, batch_id: int) -> None:
    texts = {name: text for name, text in BATCHES.items() if name != missing}
    with pytest.raises(PipelineError, match=f"{PATH}/{missing} is missing"):
        checkpoint_with(texts).planned_ranges(batch_id)


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "v1\n{}\n{}\n{}"])
def test_plan_in_another_format_is_an_error(text: str) -> None:
    with pytest.raises(PipelineError, match="format"):
        checkpoint_with({**BATCHES, "offsets/1": text}).planned_ranges(1)


TORN = {
    "metadata": ["", '{"id"', "{}"],
    "sources/0/0": ["", "\0v1", '\0v1\n{"t": {"0"'],
    "offsets/2": ["", "\0\0\0\0", "v1\n{}", 'v1\n{}\n{"t": {"0": 9'],
    "commits/1": ["", "v1", "v1\n{"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in TORN.items() for text in texts]
)
def test_torn_file_is_an_error_that_names_it_and_the_way_to_continue(name: str, text: str) -> None:
    """Spark does not sync its files, so a power failure leaves empty and shortened ones."""
    checkpoint_with(BATCHES).check_newest_files()
    torn = checkpoint_with({**BATCHES, name: text})
    with pytest.raises(PipelineError, match=f"{PATH}/{name} is torn.*--rebuild-chec") as refused:
        if name == "metadata":
            torn.query_id()
        else:
            torn.check_newest_files()
    assert "\n" not in str(refused.value)


def test_checkpoint_without_a_batch_has_no_torn_file() -> None:
    checkpoint_with({"metadata": BATCHES["metadata"]}).check_newest_files()


def test_batch_is_unfinished_between_its_plan_and_its_commit() -> None:
    assert checkpoint_with(BATCHES).has_unfinished_batch()
    assert not checkpoint_with({**BATCHES, "commits/2": "v1\n{}"}).has_unfinished_batch()
    assert not checkpoint_with({}).has_unfinished_batch()


@pytest.mark.parametrize(
    "removed",
    [("offsets/0", "offsets/1", "offsets/2"), ("offsets/1", "offsets/2")],
    ids=["all plans", "the newest plans"],
)
def test_finished_batch_without_its_plan_is_an_error_that_names_it(
    removed: tuple[str, ...],
) -> None:
    checkpoint_with(BATCHES).check_plans_exist()
    checkpoint_with({}).check_plans_exist()
    texts = {name: text for name, text in BATCHES.items() if name not in removed}
    with pytest.raises(PipelineError, match="finished batch 1, and the file offsets/1") as refused:
        checkpoint_with(texts).check_plans_exist()
    assert "\n" not in str(refused.value)


def test_batches_are_counted_by_number_and_not_by_name() -> None:
    texts = {"offsets/9": "", "offsets/10": "", "commits/9": "", "commits/.10.crc": ""}
    assert checkpoint_with(texts).has_unfinished_batch()


def test_checkpoint_has_a_query_once_its_metadata_exists() -> None:
    assert checkpoint_with(BATCHES).exists()
    assert checkpoint_with(BATCHES).query_id() == "q"
    assert checkpoint_with(BATCHES).has_finished_batch()
    assert not checkpoint_with({}).exists()
    assert not checkpoint_with({}).has_finished_batch()


OFFSETS = st.dictionaries(
    st.sampled_from(["t", "u"]),
    st.dictionaries(st.integers(0, 12).map(str), st.integers(0, 100)),
)


@given(OFFSETS, OFFSETS)
def test_ranges_hold_each_offset_between_start_and_end_once(start: Offsets, end: Offsets) -> None:
    ranges = ranges_between(start, end)
    held = [
        (one.topic, one.partition, offset)
        for one in ranges
        for offset in range(one.start_offset, one.end_offset)
    ]
    expected = {
        (topic, int(partition), offset)
        for topic, partitions in end.items()
        for partition, end_offset in partitions.items()
        for offset in range(start.get(topic, {}).get(partition, 0), end_offset)
    }
    assert len(held) == len(expected)
    assert set(held) == expected
    assert list(ranges) == sorted(ranges, key=lambda one: one.topic_partition)
    assert all(one.start_offset < one.end_offset for one in ranges)
