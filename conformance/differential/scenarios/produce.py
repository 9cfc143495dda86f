"""Produce: the record batches that a leader accepts, and the errors for other batches."""

from __future__ import annotations

from conformance.differential.batches import T0, batch, fetch, lying, produce
from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import produce_request as p

DAY_MS = 86_400_000


class Target:
    """A topic for produce requests of any version, by name or by id."""

    def __init__(self, s: Session, hint: str = "t", partitions: int = 1, **configs: str) -> None:
        self.session = s
        self.name = s.create(hint, partitions, **configs)
        self.topic_id = s.topic_id(self.name)
        s.plainer.alias("topic_id", self.topic_id)

    def send(self, step: str, records: bytes | bytearray | None, **options: object) -> None:
        request = produce(self.name, records, topic_id=self.topic_id, **options)  # type: ignore[arg-type]
        self.session.ask(step, request)

    def kept(self, step: str = "what is kept") -> None:
        """Read partition 0 as a consumer, and keep the records for the comparison."""
        self.session.ask(step, fetch(self.name), 12, on="consumer")


@scenario(ApiKey.PRODUCE)
def accepted(s: Session) -> None:
    topic = Target(s)
    topic.send("first", batch(3))
    topic.send("acks all", batch(2), acks=-1)
    for name in ("gzip", "snappy", "lz4"):
        topic.send(name, batch(3, compression=name))
    topic.send("with a leader epoch", lying(batch(), partition_leader_epoch=9))
    topic.send("empty value", batch(1, value_bytes=0))
    topic.kept()


@scenario(ApiKey.PRODUCE, versions=(3, 6, 7, 9, 13))
def zstd(s: Session) -> None:
    topic = Target(s)
    topic.send("zstd", batch(3, compression="zstd"))
    topic.kept()


@scenario(ApiKey.PRODUCE)
def log_append_time(s: Session) -> None:
    topic = Target(s, message_timestamp_type="LogAppendTime")
    topic.send("one", batch(3))
    topic.send("acks all", batch(1), acks=-1)
    topic.send("gzip", batch(2, compression="gzip"))
    topic.kept()


@scenario(ApiKey.PRODUCE)
def header_lies(s: Session) -> None:
    topic = Target(s)
    for magic in (-1, 0, 1, 3):
        topic.send(f"magic {magic}", lying(batch(3), magic=magic))
    topic.send("crc", lying(batch(3), crc=1))
    topic.send("count 2 of 3", lying(batch(3), record_count=2))
    topic.send("count 4 of 3", lying(batch(3), record_count=4))
    topic.send("count 0", lying(batch(3), record_count=0))
    topic.send("count -1", lying(batch(3), record_count=-1))
    topic.send("delta 1 of 2", lying(batch(3), last_offset_delta=1))
    topic.send("delta 3 of 2", lying(batch(3), last_offset_delta=3))
    topic.send("delta -1", lying(batch(3), last_offset_delta=-1))
    apart = Target(s, "apart")  # One of the brokers stores it, which moves later offsets.
    apart.send("delta and count 5", lying(batch(3), last_offset_delta=4, record_count=5))
    topic.send("base offset 7", lying(batch(3), base_offset=7))
    topic.send("base offset -1", lying(batch(3), base_offset=-1))
    for delta in (-1, 1, -60, 1000):
        data = batch(3)
        length = len(data) - 12 + delta
        topic.send(f"length {delta:+}", lying(data, batch_length=length))
    topic.send("length of 0", lying(batch(3), batch_length=0))
    topic.send("length of -1", lying(batch(3), batch_length=-1))
    topic.kept()


@scenario(ApiKey.PRODUCE)
def shapes(s: Session) -> None:
    topic = Target(s)
    topic.send("null", None)
    topic.send("empty", b"")
    topic.send("ten bytes", bytes(10))
    topic.send("zeros", bytes(61))
    topic.send("two batches", batch() + batch())
    topic.send("batch and rest", batch() + b"\0" * 5)
    topic.send("cut off", batch(3)[:-1])
    topic.send("header alone", batch(3)[:61])
    topic.send("garbage", b"\xff" * 100)
    topic.kept()


@scenario(ApiKey.PRODUCE)
def attributes(s: Session) -> None:
    topic = Target(s)
    for kind in (5, 6, 7):
        topic.send(f"compression {kind}", lying(batch(), attributes=kind))
    topic.send("control", batch(control=True))
    topic.send("transactional", batch(transactional=True))
    numbered = batch(transactional=True, producer_id=999_999, producer_epoch=0, base_sequence=0)
    topic.send("transactional with a producer", numbered)
    apart = Target(s, "apart")  # One of the brokers stores it, which moves later offsets.
    apart.send("gzip that is not", lying(batch(), attributes=1))
    topic.send("LogAppendTime", lying(batch(), attributes=8))
    topic.send("delete horizon", lying(batch(), attributes=0x40))
    topic.send("unused bits", lying(batch(), attributes=0x0F80))
    topic.kept()


@scenario(ApiKey.PRODUCE)
def body_lies(s: Session) -> None:
    """Each batch has a topic of its own, because only one of the brokers stores some of them."""
    data = batch(3)
    data[61] ^= 0x7E  # The first record's length.
    Target(s, "length").send("record length", lying(data))
    data = batch(3)
    data[-1] = 2  # The header count is wrong: 1 instead of 0.
    Target(s, "headers").send("header count", lying(data))
    for field, hint, changes in (
        ("max timestamp", "max", {"max_timestamp": T0 + 500}),
        ("base timestamp", "base", {"base_timestamp": T0 - 500}),
    ):
        topic = Target(s, hint)
        topic.send(field, lying(batch(3), **changes))
        topic.kept(f"{field}, kept")


@scenario(ApiKey.PRODUCE)
def timestamps(s: Session) -> None:
    topic = Target(s)
    topic.send("none", batch(first_ms=-1))
    topic.send("negative", lying(batch(), base_timestamp=-5, max_timestamp=-5))
    topic.send("far ahead", batch(first_ms=4_000_000_000_000))
    topic.send("zero", batch(first_ms=0))
    short = Target(s, "short", message_timestamp_before_max_ms=str(DAY_MS))
    short.send("too old", batch(first_ms=T0))
    short.send("ahead", batch(first_ms=4_000_000_000_000))
    ahead = Target(s, "ahead", message_timestamp_after_max_ms=str(2**63 - 1))
    ahead.send("ahead of all", batch(first_ms=4_000_000_000_000))
    append = Target(s, "append", message_timestamp_type="LogAppendTime")
    append.send("append time does not care", batch(first_ms=4_000_000_000_000))
    append.send("none there", batch(first_ms=-1))


@scenario(ApiKey.PRODUCE)
def sizes(s: Session) -> None:
    topic = Target(s, max_message_bytes="1000")
    topic.send("fits", batch(1, value_bytes=900))
    exact = 1000 - (len(batch(1, value_bytes=900)) - 900)
    topic.send("exactly", batch(1, value_bytes=exact))
    topic.send("one more", batch(1, value_bytes=exact + 1))
    topic.send("much", batch(1, value_bytes=100_000))
    small = Target(s, "small", segment_bytes="1048576", max_message_bytes="2000000")
    small.send("more than a segment", batch(1, value_bytes=1_100_000))
    topic.kept()


@scenario(ApiKey.PRODUCE)
def addresses(s: Session) -> None:
    topic = Target(s, partitions=2)
    for partition in (1, 2, -1):
        topic.send(f"partition {partition}", batch(), partition=partition)
    name = s.name("nobody")
    s.ask("unknown topic", produce(name, batch(), topic_id=b"\7" * 16))
    s.ask("zero id, or no name", produce("", batch()))
    s.ask("invalid name", produce("a b", batch(), topic_id=b"\7" * 16))
    s.ask("no topics", p.ProduceRequest(None, 1, 1000, []))
    nothing = p.TopicProduceData(topic.name, topic.topic_id, [])
    s.ask("no partitions", p.ProduceRequest(None, 1, 1000, [nothing]))
    both = [p.PartitionProduceData(0, batch()), p.PartitionProduceData(5, batch())]
    mixed = p.TopicProduceData(topic.name, topic.topic_id, both)
    s.ask("good and bad", p.ProduceRequest(None, 1, 1000, [mixed]))
    twice = [p.PartitionProduceData(0, batch()), p.PartitionProduceData(0, batch(2))]
    again = p.TopicProduceData(topic.name, topic.topic_id, twice)
    s.ask("the same twice", p.ProduceRequest(None, 1, 1000, [again]))
    other = p.TopicProduceData(topic.name, topic.topic_id, [p.PartitionProduceData(1, batch())])
    first = p.TopicProduceData(topic.name, topic.topic_id, [p.PartitionProduceData(0, batch())])
    s.ask("the topic twice", p.ProduceRequest(None, 1, 1000, [first, other]))


@scenario(ApiKey.PRODUCE)
def acknowledgements(s: Session) -> None:
    topic = Target(s)
    for acks in (2, -2, 100):
        topic.send(f"acks {acks}", batch(), acks=acks)
    request = produce(topic.name, batch(2), acks=0, topic_id=topic.topic_id)
    s.send(request)
    topic.send("after acks 0", batch())
    bad = produce(s.name("nobody"), batch(), acks=0, topic_id=b"\7" * 16)
    s.send(bad)
    topic.send("after a bad acks 0", batch())
    least = Target(s, "least", min_insync_replicas="2")
    least.send("too few replicas", batch(), acks=-1)
    least.send("acks 1 does not care", batch(), acks=1)
    topic.kept()


@scenario(ApiKey.PRODUCE)
def internal(s: Session) -> None:
    s.group()
    topic_id = s.topic_id("__consumer_offsets")
    s.ask("plain record", produce("__consumer_offsets", batch(), topic_id=topic_id))


@scenario(ApiKey.PRODUCE)
def compaction(s: Session) -> None:
    from odradek.records.record import Record, build_batch

    topic = Target(s, cleanup_policy="compact")
    topic.send("with keys", batch(2))
    topic.send("no key", build_batch([Record(None, b"v", T0)]))
    topic.send("tombstone", build_batch([Record(b"k", None, T0)]))
    topic.kept()


@scenario(ApiKey.PRODUCE)
def recompressed(s: Session) -> None:
    """Compare only the records' values, because the brokers recompress the batches themselves."""
    topic = Target(s, compression_type="uncompressed")
    topic.send("gzip", batch(3, compression="gzip"))
    topic.send("plain", batch(2))
    topic.kept()
    packed = Target(s, "packed", compression_type="gzip")
    packed.send("plain to gzip", batch(3))
    packed.send("broken body", lying(batch(3), record_count=4))


@scenario(ApiKey.PRODUCE, versions=(3, 11, 12))
def transactional_id(s: Session) -> None:
    topic = Target(s)
    topic.send("id, plain batch", batch(), transactional_id=s.name("x"))
    data = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    topic.send("id, transactional batch", data, transactional_id=s.name("x"))
