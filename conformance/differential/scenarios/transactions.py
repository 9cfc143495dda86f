"""The transaction coordinator: ids, epochs, the partitions and the end of transactions, fencing.

Markers are written after the response. Each step therefore waits for the state to which the
previous step leads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from conformance.differential.batches import batch, produce
from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import add_partitions_to_txn_request as a
from odradek.protocol.messages import describe_transactions_request as d
from odradek.protocol.messages import end_txn_request as e
from odradek.protocol.messages import init_producer_id_request as i
from odradek.protocol.messages import list_transactions_request as li
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest

TIMEOUT_MS = 60_000
NOT_YET = {14, 15, 16, 51}


class Who(NamedTuple):
    producer_id: int
    epoch: int


def init(
    name: str | None, timeout_ms: int = TIMEOUT_MS, known: tuple[int, int] = (-1, -1)
) -> i.InitProducerIdRequest:
    return i.InitProducerIdRequest(name, timeout_ms, *known)


def add(name: str, who: tuple[int, int], *topics: tuple[str, list[int]]) -> Any:
    """Return AddPartitionsToTxn with the fields of all versions; from 4 on, as from a broker."""
    each = [a.AddPartitionsToTxnTopic(*topic) for topic in topics]
    batched = [a.AddPartitionsToTxnTransaction(name, *who, False, each)]
    return a.AddPartitionsToTxnRequest(batched, name, *who, each)


def verify(name: str, who: tuple[int, int], *topics: tuple[str, list[int]]) -> Any:
    each = [a.AddPartitionsToTxnTopic(*topic) for topic in topics]
    return a.AddPartitionsToTxnRequest([a.AddPartitionsToTxnTransaction(name, *who, True, each)])


def end(name: str, who: tuple[int, int], committed: bool = True) -> e.EndTxnRequest:
    return e.EndTxnRequest(name, *who, committed)


def describe(*names: str) -> d.DescribeTransactionsRequest:
    return d.DescribeTransactionsRequest(list(names))


def coordinated(s: Session, hint: str = "x") -> str:
    """Return a transactional id whose coordinator is loaded."""
    name = s.name(hint)
    found = FindCoordinatorRequest(key=name, key_type=1)
    s.until(lambda response: response.error_code == 0, found, 3)
    known = s.until(
        lambda response: response.transaction_states[0].error_code not in NOT_YET, describe(name), 0
    )
    assert known.transaction_states[0].error_code == 105, known
    s.producer_id()  # Kafka first fetches a block of producer ids.
    return name


def begun(s: Session, name: str) -> Who:
    """Initialize a new producer of `name`, without keeping the response."""
    response = s.until(lambda found: found.error_code == 0, init(name), 4)
    return Who(response.producer_id, response.producer_epoch)


def settled(s: Session, name: str, state: str) -> None:
    """Wait until the transaction has reached a state."""
    last = s.until(
        lambda response: response.transaction_states[0].transaction_state == state,
        describe(name),
        0,
    )
    assert last.transaction_states[0].transaction_state == state, last


@scenario(ApiKey.INIT_PRODUCER_ID)
def epochs(s: Session) -> None:
    name = coordinated(s)
    first = s.ask("first", init(name))
    s.ask("again", init(name))
    known = (first.producer_id, 1)
    s.ask("own epoch", init(name, known=known))
    s.ask("own epoch, retry", init(name, known=known))
    s.ask("older epoch", init(name, known=(first.producer_id, 0)))
    s.ask("later epoch", init(name, known=(first.producer_id, 9)))
    s.ask("other id", init(name, known=(first.producer_id + 10_000, 0)))
    s.ask("id alone", init(name, known=(5, -1)))
    s.ask("epoch alone", init(name, known=(-1, 5)))
    s.ask("described", describe(name), 0, on="other")


@scenario(ApiKey.INIT_PRODUCER_ID)
def bounds(s: Session) -> None:
    name = coordinated(s)
    s.ask("empty name", init(""))
    s.ask("time-out 0", init(name, 0))
    s.ask("time-out -1", init(name, -1))
    s.ask("time-out too long", init(name, 900_001))
    s.ask("not known by now", describe(name), 0, on="other")
    s.ask("longest time-out", init(name, 900_000))
    s.ask("time-out 1", init(name, 1))
    s.ask("with a strange identity", init(s.name("fresh"), known=(77, 3)))


@scenario(ApiKey.INIT_PRODUCER_ID)
def fences(s: Session) -> None:
    name, topic = coordinated(s), s.create("t", 2)
    who = begun(s, name)
    s.quiet(add(name, who, (topic, [0, 1])), 3)
    s.ask("while open", init(name))
    settled(s, name, "CompleteAbort")
    s.ask("then", init(name))
    s.ask("the fenced one", init(name, known=who))
    s.ask("its end", end(name, who), 3, on="other")
    s.ask("its partitions", add(name, who, (topic, [0])), 3, on="other")
    s.ask("described", describe(name), 0, on="other")


@scenario(ApiKey.ADD_PARTITIONS_TO_TXN)
def added(s: Session) -> None:
    name, topic, other = coordinated(s), s.create("t", 3), s.create("u")
    who = begun(s, name)
    s.ask("no partitions", add(name, who))
    s.ask("one", add(name, who, (topic, [0])))
    s.ask("it again", add(name, who, (topic, [0])))
    s.ask("two topics", add(name, who, (topic, [0, 2]), (other, [0])))
    s.ask("one is missing", add(name, who, (topic, [1, 7])))
    s.ask("topic is missing", add(name, who, (topic, [1]), (s.name("no"), [0])))
    s.ask("other epoch", add(name, (who.producer_id, who.epoch + 1), (topic, [1])))
    s.ask("other id", add(name, (who.producer_id + 10_000, 0), (topic, [1])))
    s.ask("unknown name", add(s.name("nobody"), who, (topic, [1])))
    s.ask("empty name", add("", who, (topic, [1])))
    s.ask("described", describe(name), 0, on="other")


@scenario(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(4, 5))
def verified(s: Session) -> None:
    name, topic = coordinated(s), s.create("t", 2)
    who = begun(s, name)
    s.ask("before", verify(name, who, (topic, [0])))
    s.quiet(add(name, who, (topic, [0])), 3)
    s.ask("one of two", verify(name, who, (topic, [0, 1])))
    s.ask("missing", verify(name, who, (topic, [0, 5])))
    s.ask("other epoch", verify(name, (who.producer_id, 9), (topic, [0])))
    s.ask("other id", verify(name, (who.producer_id + 10_000, 0), (topic, [0])))
    s.ask("unknown name", verify(s.name("nobody"), who, (topic, [0])))
    s.ask("empty name", verify("", who, (topic, [0])))
    s.quiet(end(name, who), 3)
    settled(s, name, "CompleteCommit")
    s.ask("after", verify(name, who, (topic, [0])))


@scenario(ApiKey.ADD_OFFSETS_TO_TXN)
def offsets(s: Session) -> None:
    name, group = coordinated(s), s.group()
    who = begun(s, name)
    s.ask("a group", AddOffsetsToTxnRequest(name, *who, group))
    s.ask("again", AddOffsetsToTxnRequest(name, *who, group))
    s.ask("other epoch", AddOffsetsToTxnRequest(name, who.producer_id, 5, group))
    s.ask("other id", AddOffsetsToTxnRequest(name, who.producer_id + 10_000, 0, group))
    s.ask("unknown name", AddOffsetsToTxnRequest(s.name("nobody"), *who, group))
    s.ask("empty name", AddOffsetsToTxnRequest("", *who, group))


@scenario(ApiKey.END_TXN, versions=range(5))
def ends(s: Session) -> None:
    name, topic = coordinated(s), s.create("t", 2)
    who = begun(s, name)
    s.ask("commit of nothing", end(name, who))
    s.ask("abort of nothing", end(name, who, False))
    for committed in (True, False):
        verb = "commit" if committed else "abort"
        s.quiet(add(name, who, (topic, [0, 1])), 3)
        s.ask(verb, end(name, who, committed))
        settled(s, name, "CompleteCommit" if committed else "CompleteAbort")
        s.ask(f"{verb} again", end(name, who, committed))
        s.ask(f"not {verb}", end(name, who, not committed))
    s.ask("other epoch", end(name, (who.producer_id, who.epoch + 1)))
    s.ask("other id", end(name, (who.producer_id + 10_000, 0)))
    s.ask("unknown name", end(s.name("nobody"), who))
    s.ask("empty name", end("", who))
    s.ask("described", describe(name), 0, on="other")


@scenario(ApiKey.END_TXN, versions=(5,))
def ends_and_bumps(s: Session) -> None:
    """transaction.version 2: every end bumps the epoch."""
    name, topic = coordinated(s), s.create("t", 2)
    pid, epoch = begun(s, name)
    s.ask("commit of nothing", end(name, (pid, epoch)))
    s.ask("abort of nothing", end(name, (pid, epoch), False))
    settled(s, name, "CompleteAbort")
    s.ask("its retry", end(name, (pid, epoch), False))
    s.ask("its opposite", end(name, (pid, epoch)))
    s.ask("another abort", end(name, (pid, epoch + 1), False))
    settled(s, name, "CompleteAbort")
    s.ask("commit of nothing again", end(name, (pid, epoch + 2)))
    who = (pid, epoch + 2)
    s.ask("add", add(name, who, (topic, [0, 1])), 5, on="other")
    s.ask("a retry from the past", end(name, (pid, epoch + 1), False))
    s.ask("commit", end(name, who))
    settled(s, name, "CompleteCommit")
    s.ask("commit, retry", end(name, who))
    s.ask("commit, opposite", end(name, who, False))
    s.ask("old epoch adds", add(name, who, (topic, [0])), 5, on="other")
    s.ask("after commit, abort of nothing", end(name, (pid, epoch + 3), False))
    settled(s, name, "CompleteAbort")
    s.ask("epoch ahead", end(name, (pid, epoch + 9)))
    s.ask("other id", end(name, (pid + 10_000, 0)))
    s.ask("unknown name", end(s.name("nobody"), who))
    s.ask("empty name", end("", who))
    s.ask("init with the last", init(name, known=(pid, epoch + 3)), 4, on="other")
    s.ask("described", describe(name), 0, on="other")


@scenario(ApiKey.DESCRIBE_TRANSACTIONS)
def described(s: Session) -> None:
    name, topic = coordinated(s), s.create("t", 3)
    who = begun(s, name)
    s.ask("empty", describe(name))
    s.quiet(add(name, who, (topic, [2, 0])), 3)
    s.ask("open", describe(name))
    s.quiet(end(name, who), 3)
    settled(s, name, "CompleteCommit")
    s.ask("complete", describe(name))
    s.ask("two and an unknown one", describe(name, s.name("nobody"), ""))
    s.ask("none", describe())


@scenario(ApiKey.LIST_TRANSACTIONS)
def listed(s: Session) -> None:
    """Compare only this scenario's transactional ids, because other scenarios leave theirs."""
    names = [coordinated(s, hint) for hint in ("one", "two")]
    topic = s.create("t")
    who = [begun(s, name) for name in names]
    s.quiet(add(names[0], who[0], (topic, [0])), 3)
    ids = [each.producer_id for each in who]
    s.ask("by id", li.ListTransactionsRequest(producer_id_filters=ids))
    s.ask("by state", li.ListTransactionsRequest(["Ongoing"], ids))
    s.ask("by odd states", li.ListTransactionsRequest(["Ongoing", "odd", "Dead"], ids))
    s.ask("open for an hour", li.ListTransactionsRequest(["Ongoing"], ids, 3_600_000))
    s.ask("open for 0 ms", li.ListTransactionsRequest([], [ids[1]], 0))
    for pattern in (".*-one", "one", "(", ""):
        s.ask(f"pattern {pattern}", li.ListTransactionsRequest([], ids, -1, pattern))


@scenario(ApiKey.PRODUCE, versions=(3, 9, 11, 12))
def in_transactions(s: Session) -> None:
    """Write in a transaction: accepted and refused batches, and the records that readers see."""
    name, topic = coordinated(s), s.create("t", 2)
    who = begun(s, name)

    def write(step: str, partition: int, sequence: int, **options: Any) -> None:
        of_producer = {"producer_id": who.producer_id, "producer_epoch": who.epoch, **options}
        data = batch(2, transactional=True, base_sequence=sequence, **of_producer)
        request = produce(topic, data, acks=-1, partition=partition, transactional_id=name)
        s.ask(step, request)

    s.quiet(add(name, who, (topic, [0])), 3)
    write("first", 0, 0)
    write("second", 0, 2)
    write("second again", 0, 2)
    write("not added", 1, 0)
    plain = batch(1, producer_id=who.producer_id, producer_epoch=who.epoch, base_sequence=4)
    s.ask("plain in between", produce(topic, plain, acks=-1))
    _read(s, topic, "while open")
    s.quiet(end(name, who, False), 3)
    settled(s, name, "CompleteAbort")
    _read(s, topic, "aborted")
    write("after the end", 0, 4)
    write("later epoch", 0, 0, producer_epoch=who.epoch + 1)


def _read(s: Session, topic: str, when: str) -> None:
    for isolation in (0, 1):
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation,
            topics=[FetchTopic(topic, partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])],
        )
        s.ask(f"{when}, isolation {isolation}", fetch, 11, on="reader")
