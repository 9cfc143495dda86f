"""Produce, versions 3-13 (0-2 are advertised, and refused: KAFKA-18659).

Each partition's records must be exactly one batch of format v2; it is checked by its header and
CRC and appended in the order of the request. acks=1 is answered when it is in the log, acks=all
when the high watermark has passed it, acks=0 never: an error closes that connection instead. A
topic whose flush.messages is due is flushed first, whatever the acks. Topics whose
compression.type is not ``producer`` are recompressed, and the records of internal and of compacted
topics, which need keys, are checked one by one (`odradek.records.validate_body`).

A transactional batch needs a transactional id in the request, and the coordinator's word for the
first one in a partition, which is asked for before anything is appended (`broker.verification`).
From version 12 on asking adds the partition to the transaction (KIP-890).

KIP-467 (error messages), KIP-516 (topic ids, version 13), KIP-951 (the current leader, version 10).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.broker.requests.repeated_produce import TOPIC_ID_VERSION, ZSTD_VERSION
from odradek.broker.transactions.partition_verification import (
    Operation,
    Transaction,
    Verdicts,
    verify,
)
from odradek.errors import ErrorCode, KafkaError, RecordsRefused
from odradek.ids import TopicPartition
from odradek.log.state.verification import CLIENT, NO_GUARD, Origin
from odradek.net.connection import CloseConnection
from odradek.old_slicing import ELEMENTS_A_TURN, begun_work, in_turns
from odradek.protocol.messages.produce_request import TopicProduceData
from odradek.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    parse_header,
)
from odradek.replication.partition import ACKS_ALL, ACKS_LEADER, Partition

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.ids import Uuid
    from odradek.log.unified_log import LogAppendInfo
    from odradek.offloading import Step, Work
    from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest
    from odradek.records.validate import Writable

Result = ProduceResponse | None | asyncio.Future[Any] | Coroutine[Any, Any, Any]

ABORTABLE_VERSION = 11
ADD_PARTITION_VERSION = 12
CURRENT_LEADER_VERSION = 10
ZSTD = 4
NEW_LOG_ELEMENTS = 20
"""Elements of a turn (`odradek.slicing`) that the first append to a partition is worth: it makes
directory and files.
"""
OPENED_BATCH_ELEMENTS = 50
"""Elements of a turn that the first slice of an opened batch is worth."""
FAILURES_NAMED_MAX = 10
"""How many of a request's failures the log names."""
ADMIN_CLIENT_ID = "__admin_client"
"""The client id with which Kafka lets its own tools write to internal topics."""
LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1

_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class _Call:
    """What one request collects while its partitions are appended."""

    __slots__ = (
        "acks",
        "context",
        "failures",
        "later",
        "leaders",
        "now_ms",
        "services",
        "timeout_ms",
        "verdicts",
        "waiting",
    )

    def __init__(
        self, services: Services, context: RequestContext, request: ProduceRequest, now_ms: int
    ) -> None:
        self.services = services
        self.context = context
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.now_ms = now_ms
        # May the batches of a request with a transactional id be appended? None without one.
        self.verdicts: Verdicts | None = None
        self.failures: list[str] = []
        self.leaders: set[int] = set()
        # Appended, but not to be acknowledged before the high watermark has reached the offset.
        self.waiting: dict[Partition, int] = {}
        # Batches whose records are still being checked or recompressed.
        self.later: list[_Opening] = []


class _Opening(NamedTuple):
    """A batch whose records are checked or recompressed. The response takes its place in `answers`
    at `position`.
    """

    partition: Partition
    work: Work[Writable]
    step: Step
    answers: list[PartitionProduceResponse]
    position: int


def handle(services: Services, context: RequestContext, request: ProduceRequest) -> Result:
    """Appends each partition's batch; see the module's text for when the answer leaves."""
    topic_data = request.topic_data
    if request.transactional_id is None and len(topic_data) == 1 == len(
        topic_data[0].partition_data
    ):
        return _append_one(services, context, request)
    call = _Call(services, context, request, services.clock.time_ms())
    if topic_data and (topic_data[1:] or topic_data[0].partition_data[1:]):
        return begun_work(_handle_each(call, request))
    if request.transactional_id is not None:
        return _append_transactional(call, topic_data, request.transactional_id)
    return _append_all(call, topic_data)


def _append_one(services: Services, context: RequestContext, request: ProduceRequest) -> Result:
    """One batch for one partition, and mostly nothing to wait for: a `_Call` is made only for what
    is not so. The busiest path of a broker: the calls of `_append_all` are what is saved.
    """
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    version = context.api_version
    manager = services.replica_manager
    name: Any = (
        manager.topic_names.get(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.name
    )
    partition = manager.partitions.get((name, data.index))
    records: Any = data.records
    acks = request.acks
    now_ms = services.clock.time_ms()
    if (
        partition is None
        or not partition.plain
        or (acks != ACKS_LEADER and acks != ACKS_ALL)
        or version < ZSTD_VERSION
        or records is None
    ):
        return _append_all(_Call(services, context, request, now_ms), request.topic_data)
    try:
        info = partition.append(records, acks, now_ms)
    except KafkaError as error:
        return refused(services, context, request, partition, error)
    answer = PartitionProduceResponse(
        data.index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset
    )
    response = _response(topic, answer)
    if info.last_offset < partition.log.high_watermark:
        return response
    call = _Call(services, context, request, now_ms)
    _wait_if_due(call, partition, info)
    return _answer(call, response)


def refused(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    partition: Partition,
    error: KafkaError,
) -> Result:
    """The answer to a request of one batch (acks=1 or all) that `partition` refused."""
    call = _Call(services, context, request, services.clock.time_ms())
    topic = request.topic_data[0]
    answer = _refused(call, partition, topic.partition_data[0].index, error)
    return _answer(call, _response(topic, answer))


def _response(topic: TopicProduceData, answer: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])


def _handle_each(call: _Call, request: ProduceRequest) -> Generator[None, None, Result]:
    """Appends to several partitions, with a yield wherever a turn is over. Each is looked up when
    it is appended to; what happened to the others meanwhile is no business of this one.
    """
    topic_data, transactional = yield from _without_repeated(request.topic_data)
    if request.transactional_id is not None:
        return _append_transactional(call, topic_data, request.transactional_id)
    if transactional:
        error = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return (yield from _refuse_all(call, topic_data, error))
    return (yield from _append_each(call, topic_data))


def _append_each(call: _Call, topic_data: list[TopicProduceData]) -> Generator[None, None, Result]:
    """As `_append_all`, with a yield wherever a turn is over."""
    acks = call.acks
    manager = call.services.replica_manager
    by_id = call.context.api_version >= TOPIC_ID_VERSION
    topics = []
    left = ELEMENTS_A_TURN
    for topic in topic_data:
        answers: list[PartitionProduceResponse] = []
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        left -= 1
        for data in topic.partition_data:
            if left <= 0:
                left = ELEMENTS_A_TURN
                yield
            name: Any = manager.topic_names.get(topic.topic_id) if by_id else topic.name
            partition = manager.partitions.get((name, data.index))
            left -= 1 if partition is None or partition.log.on_disk else NEW_LOG_ELEMENTS
            if partition is not None and not partition.plain:
                left -= OPENED_BATCH_ELEMENTS
            if partition is None or not partition.plain or acks not in (ACKS_LEADER, ACKS_ALL):
                _append_special(call, name, partition, data, answers)
            else:
                answers.append(_append(call, partition, data.index, data.records))
    response = ProduceResponse(topics)
    if call.later:
        return _append_later(call, response)
    return _answer(call, response)


def _append_all(call: _Call, topic_data: list[TopicProduceData]) -> Result:
    """Appends everything, in the order of the request."""
    acks = call.acks
    manager = call.services.replica_manager
    by_id = call.context.api_version >= TOPIC_ID_VERSION
    topics = []
    for topic in topic_data:
        name = manager.topic_names.get(topic.topic_id) if by_id else topic.name
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition = manager.partitions.get((name, data.index))  # type: ignore[arg-type]
            if partition is None or not partition.plain or acks not in (ACKS_LEADER, ACKS_ALL):
                _append_special(call, name, partition, data, answers)
            else:
                answers.append(_append(call, partition, data.index, data.records))
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    response = ProduceResponse(topics)
    if call.later:
        return _append_later(call, response)
    if call.waiting or call.leaders or not acks:
        return _answer(call, response)
    return response


def _append_transactional(
    call: _Call, topic_data: list[TopicProduceData], transactional_id: str
) -> Result:
    """Asks the coordinator about the transaction of the batches, then appends."""
    producers, sequences = _transactional_batches(call, topic_data)
    if len(producers) > 1:
        message = "Transactional records contained more than one producer ID"
        error = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        return begun_work(_refuse_all(call, topic_data, error))
    call.verdicts = {}
    if producers:
        transaction = Transaction(transactional_id, *producers.pop())
        verdicts = verify(call.services, transaction, sequences, _operation(call.context))
        if not isinstance(verdicts, dict):
            return _append_when_verified(call, topic_data, verdicts)
        call.verdicts = verdicts
    return begun_work(_append_each(call, topic_data))


async def _append_when_verified(
    call: _Call,
    topic_data: list[TopicProduceData],
    verdicts: Coroutine[Any, Any, Verdicts],
) -> Any:
    call.verdicts = await verdicts
    return await in_turns(_append_each(call, topic_data))


def _transactional_batches(
    call: _Call, topic_data: list[TopicProduceData]
) -> tuple[set[tuple[int, int]], dict[Partition, int]]:
    """The (producer id, epoch) of the transactional batches, and their first sequences."""
    manager = call.services.replica_manager
    by_id = call.context.api_version >= TOPIC_ID_VERSION
    producers: set[tuple[int, int]] = set()
    sequences: dict[Partition, int] = {}
    for topic in topic_data:
        name: Any = manager.topic_names.get(topic.topic_id) if by_id else topic.name
        for data in topic.partition_data:
            partition = manager.partitions.get((name, data.index))
            records: Any = data.records
            if partition is None or records is None or len(records) < HEADER_BYTES:
                continue
            header = parse_header(records)
            if header.magic == MAGIC_V2 and header.is_transactional and header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
                sequences[partition] = header.base_sequence
    return producers, sequences


def _operation(context: RequestContext) -> Operation:
    if context.api_version >= ADD_PARTITION_VERSION:
        return Operation.ADD_PARTITION
    if context.api_version >= ABORTABLE_VERSION:
        return Operation.GENERIC_ERROR
    return Operation.DEFAULT_ERROR


def _origin(call: _Call, partition: Partition) -> Origin:
    """With what the batch of a transaction may be appended; KafkaError when it may not."""
    assert call.verdicts is not None
    verdict = call.verdicts.get(partition, NO_GUARD)
    if isinstance(verdict, int):
        return CLIENT if verdict == NO_GUARD else Origin(verdict)
    code = verdict.code
    if code is ErrorCode.INVALID_TXN_STATE:
        raise KafkaError(code, "Partition was not added to the transaction")
    if code in _COORDINATOR_ERRORS and (
        code is not ErrorCode.CONCURRENT_TRANSACTIONS
        or _operation(call.context) is not Operation.ADD_PARTITION
    ):
        # Every client tries again after this code, and asks for no metadata first.
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            + code.name,
        )
    raise verdict


def _refuse_all(
    call: _Call, topic_data: list[TopicProduceData], error: KafkaError
) -> Generator[None, None, Result]:
    """Nothing is appended: each partition is answered with the error of the request. Yields
    wherever a turn is over.
    """
    topics = []
    seen = 0
    for topic in topic_data:
        answers: list[PartitionProduceResponse] = []
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        for data in (None, *topic.partition_data):
            seen += 1
            if not seen % ELEMENTS_A_TURN:
                yield
            if data is not None:
                answers.append(_refused(call, None, data.index, error))
    return _answer(call, ProduceResponse(topics))


def _without_repeated(
    topic_data: list[TopicProduceData],
) -> Generator[None, None, tuple[list[TopicProduceData], bool]]:
    """Of a partition that is named more than once the last records count, and a topic is answered
    once, as in Kafka, which collects them in a map. And whether any batch is transactional. Yields
    wherever a turn is over.
    """
    transactional = seen = 0
    wanted: dict[tuple[Uuid, str], dict[int, PartitionProduceData]] = {}
    count = 0
    for topic in topic_data:
        partitions = wanted.setdefault((topic.topic_id, topic.name), {})
        for data in (None, *topic.partition_data):
            seen += 1
            if not seen % ELEMENTS_A_TURN:
                yield
            if data is None:
                continue
            partitions[data.index] = data
            records: Any = data.records
            try:
                transactional |= records[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK
            except (IndexError, TypeError):
                continue  # no batch at all: the append says so
        count += len(topic.partition_data)
    if count == sum(map(len, wanted.values())) and len(wanted) == len(topic_data):
        return topic_data, bool(transactional)
    once = []
    for (topic_id, name), partitions in wanted.items():
        once.append(TopicProduceData(name, topic_id, list(partitions.values())))
        if not len(once) % ELEMENTS_A_TURN:
            yield
    return once, bool(transactional)


def _append(
    call: _Call, partition: Partition, index: int, records: Any
) -> PartitionProduceResponse:
    """Appends one batch and answers for it; an error is in the answer."""
    try:
        if records is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "there must be at least one record batch per partition"
            )
        version = call.context.api_version
        if version < ZSTD_VERSION and len(records) > 22 and records[22] & 7 == ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests of version {version} may not use zstd",
            )
        origin = None if call.verdicts is None else _origin(call, partition)
        info = partition.append(records, call.acks, call.now_ms, origin)
    except KafkaError as error:
        return _refused(call, partition, index, error)
    answer = PartitionProduceResponse(
        index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset
    )
    if partition.flush_due_offset or call.acks == ACKS_ALL:
        _wait_if_due(call, partition, info)
    return answer


def _wait_if_due(call: _Call, partition: Partition, info: LogAppendInfo) -> None:
    """Holds the answer back until its records are flushed and committed, where that is promised.

    A duplicate is acknowledged no sooner than its original. acks=1 waits only for the flush that
    its own records made due.
    """
    if partition.log.high_watermark > info.last_offset:
        return
    if call.acks == ACKS_ALL or info.must_flush or info.duplicate:
        call.waiting[partition] = max(info.last_offset + 1, call.waiting.get(partition, 0))


def _append_special(
    call: _Call,
    name: str | None,
    partition: Partition | None,
    data: PartitionProduceData,
    answers: list[PartitionProduceResponse],
) -> None:
    """What the common case is not: unknown, internal, recompressed, acks=0, or refused acks."""
    index: int = data.index
    records: Any = data.records
    try:
        if call.acks not in (0, ACKS_LEADER, ACKS_ALL):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.internal and call.context.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}"
            )
    except KafkaError as error:
        answers.append(_refused(call, partition, index, error))
        return
    if records is not None and (partition.recompressed or partition.opened):
        _open(call, partition, records, index, answers)
    else:
        answers.append(_append(call, partition, index, records))


def _open(
    call: _Call,
    partition: Partition,
    records: memoryview,
    index: int,
    answers: list[PartitionProduceResponse],
) -> None:
    """Append a batch after a look at its records: now if that takes one slice, else later."""
    from odradek.records.scan import is_usual
    from odradek.records.validate_body import open_batch

    if not partition.recompressed and is_usual(records):
        answers.append(_append(call, partition, index, records))
        return
    config, where = partition.log.config, str(partition.topic_partition)
    work = open_batch(records, config, call.now_ms, checked=partition.opened, where=where)
    try:
        step = next(work)
    except StopIteration as opened:
        answers.append(_append(call, partition, index, opened.value))
    except KafkaError as error:
        answers.append(_refused(call, partition, index, error))
    else:
        call.later.append(_Opening(partition, work, step, answers, len(answers)))
        answers.append(PartitionProduceResponse(index))


async def _append_later(call: _Call, response: ProduceResponse) -> Any:
    """Append the batches that take more than one slice. The connection's next request waits.

    The works are finished one after the other, in slices on the event loop and in threads.
    """
    try:
        for partition, work, step, answers, position in call.later:
            index = answers[position].index
            try:
                batch = await call.services.opened_batches.finish(work, step)
            except KafkaError as error:
                answers[position] = _refused(call, partition, index, error)
            else:
                answers[position] = _append(call, partition, index, batch)
    finally:
        for opening in call.later:
            opening.work.close()
    return _answer(call, response)


def _refused(
    call: _Call, partition: Partition | None, index: int, error: KafkaError
) -> PartitionProduceResponse:
    """The answer for a partition to which nothing was appended."""
    code = error.code
    version = call.context.api_version
    where = f"{index}" if partition is None else f"{partition.topic_partition}"
    call.failures.append(f"{where}: {code.name}")
    answer = PartitionProduceResponse(index, int(code), -1)
    if error.message != code.name:
        answer.error_message = error.message
    if isinstance(error, RecordsRefused) and partition is not None:
        answer.log_start_offset = partition.log.log_start_offset
        answer.record_errors = [
            BatchIndexAndErrorMessage(each, why) for each, why in error.reasons.items()
        ]
    if (
        code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and partition is not None
        and version >= CURRENT_LEADER_VERSION
    ):
        answer.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
        call.leaders.add(partition.leader)
    return answer


def _answer(call: _Call, response: ProduceResponse) -> ProduceResponse | asyncio.Future[Any] | None:
    """The response, now or when what it promises is true; nothing for acks=0."""
    if call.waiting:
        return _answer_when_committed(call, response)
    if call.acks == 0:
        _close_if_failed(call)
        return None
    if call.leaders:
        hints = leader_endpoints(call.services, call.context, call.leaders)
        response.node_endpoints = [NodeEndpoint(*hint) for hint in hints]
    return response


def _close_if_failed(call: _Call) -> None:
    """With acks=0 an error has no other way to the producer."""
    failures = call.failures
    if failures:
        named = ", ".join(failures[:FAILURES_NAMED_MAX])
        more = f", and {len(failures)} in all" if len(failures) > FAILURES_NAMED_MAX else ""
        raise CloseConnection(f"produce with acks=0 failed: {named}{more}")


def _answer_when_committed(
    call: _Call, response: ProduceResponse
) -> asyncio.Future[ProduceResponse | None]:
    """Waits for the high watermark; its errors are put into the answers before they leave."""
    future: asyncio.Future[ProduceResponse | None] = asyncio.get_running_loop().create_future()

    def finish(errors: dict[Partition, ErrorCode]) -> None:
        if future.done():
            return
        if errors:
            _fail_answers(call, response, errors)
        if call.acks == 0:
            try:
                _close_if_failed(call)
            except CloseConnection as error:
                future.set_exception(error)
            else:
                future.set_result(None)
        else:
            future.set_result(response)

    # What acks=0 and 1 wait for is a flush, and Kafka, which flushes in the request, has no
    # time-out.
    timeout_ms = call.timeout_ms if call.acks == ACKS_ALL else None
    call.services.replica_manager.wait_committed(call.waiting, timeout_ms, finish)
    return future


def _fail_answers(
    call: _Call, response: ProduceResponse, errors: dict[Partition, ErrorCode]
) -> None:
    """Puts `errors` in the place of the successes that did not come true."""
    names = call.services.replica_manager.topic_names
    codes: dict[tuple[str, int], ErrorCode] = {
        partition.topic_partition: code for partition, code in errors.items()
    }
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            code = codes.get((name, answer.index))
            if code is not None and not answer.error_code:
                answer.error_code = int(code)
                answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
                call.failures.append(f"{TopicPartition(name, answer.index)}: {code.name}")
