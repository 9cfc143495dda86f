"""Checks of a planned batch against a table's ledger: write it, skip it, or stop.

Spark repeats a batch after a crash, with the same offsets, and the job then skips it. After the
checkpoint was restored from an older copy, or its offsets were removed, Spark plans a known batch
number with other offsets. The job must not skip that batch, because the rows beyond the old
offsets would never be written. It must not write it either, if the offsets begin before or after
the end of the ledger.

Spark knows a topic by its name only. `check_sources` compares the ids of topics and cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.ledger.state import LedgerState, PartitionKey, Source

logger = logging.getLogger(__name__)

CAUSE = "The checkpoint was restored from an older copy, or its offsets were removed."
ADVICE = (
    "Bring the newest copy of the checkpoint back, or continue from the tables with"
    " --rebuild-checkpoint."
)
OLDER_TABLE = "The table is an older copy than its checkpoint."
OLDER_TABLE_ADVICE = (
    "Bring the newest copy of the whole directory back, or load the missing offsets again with"
    " --rebuild-checkpoint."
)
OTHER_DIRECTORY = "Ingest it into another directory."


def check_sources(directory: str, state: LedgerState, sources: Mapping[str, Source]) -> None:
    """Raise PipelineError if a topic is not the topic whose records the tables have.

    Args:
        directory: The path of the table directory.
        state: The ledger of the table.
        sources: The present identities of the topics. Unknown parts are not compared.

    Raises:
        PipelineError: A topic was created again, or belongs to another cluster.
    """
    for topic, now in sorted(sources.items()):
        before = state.sources.get(topic)
        if before is None or before.agrees_with(now):
            continue
        loaded = _loaded(state, topic, before)
        if not Source(before.cluster_id, None).agrees_with(Source(now.cluster_id, None)):
            raise PipelineError(
                f"Topic '{topic}' is in cluster {now.cluster_id}, and {directory} has {loaded} of"
                f" the topic of that name in cluster {before.cluster_id}. Check"
                f" --bootstrap-server. Is it a different topic? {OTHER_DIRECTORY}"
            )
        raise PipelineError(
            f"Topic '{topic}' was deleted and created again: its id was {before.topic_id} and is"
            f" {now.topic_id}. {directory} has {loaded} of the deleted topic, and the new topic"
            f" uses the same offsets for other records. {OTHER_DIRECTORY}"
        )


def check_exist(
    directory: str, state: LedgerState, topics: Iterable[str], existing: Container[str]
) -> None:
    """Raise PipelineError if a topic that the ledger has does not exist any longer."""
    for topic in topics:
        source = state.sources.get(topic)
        if source is not None and topic not in existing:
            raise PipelineError(
                f"Topic '{topic}' does not exist, and {directory} has"
                f" {_loaded(state, topic, source)} of it. Check --bootstrap-server. Was the topic"
                " deleted? Ingest other topics into another directory."
            )


def next_starts(
    loaded: Mapping[str, Mapping[str, int]],
    known: Mapping[str, Mapping[str, int]],
    partitions: Iterable[tuple[str, int]],
) -> dict[tuple[str, int], int]:
    """Return the offset at which the ingest continues each partition. Empty before its first batch.

    Args:
        loaded: The next offset of the ledger, by topic and partition.
        known: The offsets of the checkpoint. They also have partitions without a batch.
        partitions: The partitions of the topics. A partition that neither ledger nor checkpoint has
            is new, and begins at offset 0.
    """
    if not loaded and not known:
        return {}
    return {
        (topic, number): loaded.get(topic, {}).get(
            str(number), known.get(topic, {}).get(str(number), 0)
        )
        for topic, number in partitions
    }


def check_removed(
    directory: str,
    starts: Mapping[tuple[str, int], int],
    earliest: Mapping[tuple[str, int], int],
) -> None:
    """Raise PipelineError if a topic has removed offsets that were not loaded.

    Args:
        directory: The path of the table directory.
        starts: The offset at which the ingest continues, by topic and partition (`next_starts`).
        earliest: The earliest offset of each partition of the topics.
    """
    for (topic, partition), first in sorted(earliest.items()):
        next_offset = starts.get((topic, partition), first)
        if first > next_offset:
            raise PipelineError(
                f"{topic}-{partition} has removed the offsets {next_offset} to {first - 1} before"
                f" they were loaded into {directory}. Continue without them with --accept-loss,"
                " which writes these offsets into the ledger."
            )


def _loaded(state: LedgerState, topic: str, source: Source) -> str:
    rows = sum(
        partition.rows
        for key, partition in state.partitions.items()
        if (key.topic, key.cluster_id, key.topic_id) == (topic, *source)
    )
    return f"{rows:,} records"


def check_continues(table: str, state: LedgerState, batch: BatchCommit) -> None:
    """Raise PipelineError if a batch that the table does not have leaves a gap or overlaps.

    The start of a partition that the table does not have is free. Commits of format 1 have no
    planned ranges, so a batch may begin after the last record of such a commit.
    """
    for one in batch.planned or ():
        source = state.sources.get(one.topic)
        if source is None:
            continue
        key = PartitionKey(source.cluster_id, one.topic, source.topic_id, one.partition)
        partition = state.partitions.get(key)
        if partition is None or partition.next_offset == one.start_offset:
            continue
        if one.start_offset > partition.next_offset and not partition.is_exact:
            continue
        if one.start_offset > partition.next_offset:
            problem = "leave a gap after these rows"
            cause, advice = OLDER_TABLE, OLDER_TABLE_ADVICE
        else:
            problem, cause, advice = "repeat these rows", CAUSE, ADVICE
        raise PipelineError(
            f"{table} has {one.topic}-{one.partition} up to offset {partition.next_offset - 1}, and"
            f" the checkpoint plans {_plan_text(one)} for batch {batch.batch_id}, which would"
            f" {problem}. {cause} {advice}"
        )


def check_not_older(
    table: str, state: LedgerState, finished: Mapping[str, Mapping[str, int]]
) -> None:
    """Raise PipelineError if a table lacks offsets of finished batches, as an older copy does.

    Args:
        table: The path of the table.
        state: The ledger of the table.
        finished: The end offsets of the newest finished batch, by topic and partition.
    """
    for topic, source in sorted(state.sources.items()):
        for number, end in finished.get(topic, {}).items():
            key = PartitionKey(source.cluster_id, topic, source.topic_id, int(number))
            partition = state.partitions.get(key)
            if partition is not None and partition.is_exact and partition.next_offset < end:
                raise PipelineError(
                    f"{table} has {topic}-{number} up to offset {partition.next_offset - 1}, and"
                    f" the checkpoint has finished offset {end - 1}. {OLDER_TABLE}"
                    f" {OLDER_TABLE_ADVICE}"
                )


def check_repeated(table: str, stored: BatchCommit | None, batch: BatchCommit) -> BatchCommit:
    """Return `stored` if the batch may be skipped, because that is the commit of the same batch.

    Args:
        table: The path of the table.
        stored: The commit that the table has of the batch's number. None if the table has later
            batches and no commit of that number.
        batch: The batch that Spark planned now.

    Raises:
        PipelineError: Rows of the batch may be missing from the table.
    """
    number = batch.batch_id
    if stored is None:
        raise PipelineError(
            f"{table} has later batches of this query and no commit of batch {number}, so the batch"
            f" can neither be skipped nor written. {CAUSE} {ADVICE}"
        )
    if stored.query_id != batch.query_id:
        raise PipelineError(
            f"{table} has batch {number} of another query. Each query needs its own table"
            " directory: ingest into another directory."
        )
    found = differences(stored, batch)
    if found:
        more = f" ({len(found)} partitions differ)" if len(found) > 1 else ""
        raise PipelineError(
            f"Batch {number} of {table} was committed with other offsets than the checkpoint plans"
            f" for it now: {found[0]}{more}. {CAUSE} {ADVICE}"
        )
    if stored.planned is None:
        logger.warning(
            "Batch %d of %s was committed by an older version, which did not store the planned"
            " offsets. The batch fits that commit and is skipped.",
            number,
            table,
        )
    return stored


def differences(stored: BatchCommit, batch: BatchCommit) -> list[str]:
    """Return a line for each partition that shows that two commits are not of the same batch.

    The planned ranges must be equal. Where an older version stored only the ranges of the records,
    the planned ranges must contain those, and the batch may hold no record outside of them.
    """
    assert batch.planned is not None, "only a commit of an older version has no planned ranges"
    planned = {one.topic_partition: one for one in batch.planned}
    if stored.planned is not None:
        return _differences_of_plans({one.topic_partition: one for one in stored.planned}, planned)
    return _differences_from_records(
        {one.topic_partition: one for one in stored.ranges},
        planned,
        {one.topic_partition: one for one in batch.ranges},
    )


Plan = dict[tuple[str, int], PlannedRange]
Records = dict[tuple[str, int], ReadRange]


def _differences_of_plans(old: Plan, new: Plan) -> list[str]:
    return [
        f"{topic}-{partition} had {_plan_text(old.get((topic, partition)))} and now has"
        f" {_plan_text(new.get((topic, partition)))}"
        for topic, partition in sorted(old.keys() | new.keys())
        if old.get((topic, partition)) != new.get((topic, partition))
    ]


def _differences_from_records(old: Records, planned: Plan, new: Records) -> list[str]:
    found = []
    for key in sorted(old.keys() | new.keys()):
        before, plan, now = old.get(key), planned.get(key), new.get(key)
        if before is None or plan is None or not plan.contains(before):
            fits = False
        else:
            fits = now is None or before.contains(now)
        if not fits:
            found.append(
                f"{key[0]}-{key[1]} had {_records_text(before)} and now has {_plan_text(plan)} with"
                f" {_records_text(now)}"
            )
    return found


def _plan_text(one: PlannedRange | None) -> str:
    return f"offsets {one.start_offset} to {one.end_offset - 1}" if one else "no offsets"


def _records_text(one: ReadRange | None) -> str:
    return f"records {one.first_offset} to {one.last_offset}" if one else "no records"
