"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import alter_configs_request as ac
from odradek.protocol.messages import incremental_alter_configs_request as ia
from odradek.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def description(
    kind: int, name: str, keys: list[str] | None = None, *, synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsRequest:  # fmt: skip
    each = DescribeConfigsResource(kind, name, keys)
    return DescribeConfigsRequest([each], synonyms, documentation)


@scenario(ApiKey.DESCRIBE_CONFIGS)
def of_a_topic(s: Session) -> None:
    topic = s.create()
    s.ask("all", description(TOPIC, topic))
    s.ask("synonyms", description(TOPIC, topic, synonyms=True))
    s.ask("documentation", description(TOPIC, topic, documentation=True))
    changed = s.create("changed", retention_ms="5", cleanup_policy="compact,delete")
    keys = ["retention.ms", "cleanup.policy", "flush.ms"]
    s.ask("changed", description(TOPIC, changed, keys, synonyms=True))
    s.ask("unknown key", description(TOPIC, topic, ["no.such"]))
    s.ask("no keys", description(TOPIC, topic, []))
    s.ask("key twice", description(TOPIC, topic, ["retention.ms", "retention.ms"]))


@scenario(ApiKey.DESCRIBE_CONFIGS)
def of_a_broker(s: Session) -> None:
    both = _both_know(s)
    s.ask("shared", description(BROKER, "1", both))
    s.ask("synonyms", description(BROKER, "1", both, synonyms=True))
    s.ask("documentation", description(BROKER, "1", both, documentation=True))
    s.ask("default broker", description(BROKER, ""))


def _both_know(s: Session) -> list[str]:
    """Return the configs that Odradek knows. Kafka's further configs are not compared."""
    from odradek.config.broker import BROKER_CONFIGS

    return sorted(BROKER_CONFIGS)


@scenario(ApiKey.DESCRIBE_CONFIGS)
def resources(s: Session) -> None:
    s.ask("unknown topic", description(TOPIC, s.name("nobody")))
    for name in ("", "a b", "."):
        s.ask(f"topic {name!r}", description(TOPIC, name))
    for name in ("7", "x", "-1"):
        s.ask(f"broker {name!r}", description(BROKER, name, ["log.retention.ms"]))
    for kind in (0, 1, 3, 5, 100, -1):
        s.ask(f"kind {kind}", description(kind, "x"))
    s.ask("loggers of another", description(LOGGER, "7"))
    s.ask("loggers of x", description(LOGGER, "x"))
    s.ask("no resources", DescribeConfigsRequest([]))
    same = DescribeConfigsResource(TOPIC, s.create(), ["retention.ms"])
    s.ask("twice", DescribeConfigsRequest([same, same]))


def replacement(
    kind: int, name: str, only: bool = False, **configs: str | None
) -> ac.AlterConfigsRequest:
    entries = [ac.AlterableConfig(k.replace("_", "."), v) for k, v in configs.items()]
    return ac.AlterConfigsRequest([ac.AlterConfigsResource(kind, name, entries)], only)


@scenario(ApiKey.ALTER_CONFIGS)
def replaced(s: Session) -> None:
    topic = s.create(retention_ms="5")

    def shown(step: str) -> None:
        keys = ["retention.ms", "segment.bytes", "cleanup.policy"]
        s.ask(f"shown {step}", description(TOPIC, topic, keys), 4, on="other")

    def ask(step: str, only: bool = False, **configs: str | None) -> None:
        s.ask(step, replacement(TOPIC, topic, only, **configs))
        _settle(s)
        shown(step)

    ask("another", segment_bytes="2097152")
    ask("validated", True, retention_ms="7")
    ask("both", retention_ms="7", cleanup_policy="compact")
    ask("bad", retention_ms="soon")
    ask("unknown", no_such="1")
    ask("null", retention_ms=None)
    ask("none")
    twice = [ac.AlterableConfig("retention.ms", v) for v in ("1", "2")]
    s.ask("twice", ac.AlterConfigsRequest([ac.AlterConfigsResource(TOPIC, topic, twice)]))
    same = ac.AlterConfigsResource(TOPIC, topic, [ac.AlterableConfig("retention.ms", "9")])
    s.ask("resource twice", ac.AlterConfigsRequest([same, same]))
    s.ask("unknown topic", replacement(TOPIC, s.name("nobody"), retention_ms="1"))
    s.ask("bad name", replacement(TOPIC, "a b", retention_ms="1"))
    s.ask("no name", replacement(TOPIC, "", retention_ms="1"))
    for kind in (0, 3, 8, 100):
        s.ask(f"kind {kind}", replacement(kind, "1", retention_ms="1"))
    s.ask("broker 7", replacement(BROKER, "7", log_retention_ms="1"))
    s.ask("broker x", replacement(BROKER, "x", log_retention_ms="1"))
    s.ask("broker read-only", replacement(BROKER, "1", True, num_partitions="3"))
    s.ask("broker bad value", replacement(BROKER, "1", True, log_retention_ms="soon"))
    s.ask("no resources", ac.AlterConfigsRequest([]))


def _settle(s: Session) -> None:
    """Create a topic to wait for earlier changes: Kafka applies metadata records in order."""
    s.create(f"settle{len(s.responses)}")


class Increments:
    """Incremental changes of one topic's configs, each followed by a description of them."""

    def __init__(self, s: Session, topic: str, kind: int = TOPIC) -> None:
        self.session, self.topic, self.kind = s, topic, kind

    def ask(self, step: str, *changes: tuple[str, int, str | None], only: bool = False) -> None:
        entries = [ia.AlterableConfig(*change) for change in changes]
        each = ia.AlterConfigsResource(self.kind, self.topic, entries)
        self.session.ask(step, ia.IncrementalAlterConfigsRequest([each], only))

    def shown(self, step: str, *keys: str) -> Any:
        _settle(self.session)
        request = description(self.kind, self.topic, list(keys))
        return self.session.ask(f"shown {step}", request, 4, on="other")


POLICY, RETENTION = "cleanup.policy", "retention.ms"
THROTTLED = "leader.replication.throttled.replicas"


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changed(s: Session) -> None:
    topic = Increments(s, s.create())
    cases: dict[str, list[tuple[str, int, str | None]]] = {
        "set": [(RETENTION, SET, "5")],
        "set two": [(RETENTION, SET, "6"), ("flush.ms", SET, "7")],
        "delete": [(RETENTION, DELETE, None)],
        "delete what is not set": [(RETENTION, DELETE, None)],
        "delete with a value": [("flush.ms", DELETE, "3")],
        "append": [(POLICY, APPEND, "compact")],
        "append again": [(POLICY, APPEND, "compact")],
        "subtract": [(POLICY, SUBTRACT, "delete")],
        "subtract what is not there": [(POLICY, SUBTRACT, "delete")],
        "subtract the last": [(POLICY, SUBTRACT, "compact")],
        "append two": [(POLICY, APPEND, "compact,delete")],
        "append bad": [(POLICY, APPEND, "burn")],
        "append to what is unset": [(THROTTLED, APPEND, "0:1")],
        "append to a number": [(RETENTION, APPEND, "5")],
        "subtract from a number": [(RETENTION, SUBTRACT, "5")],
        "set null": [(RETENTION, SET, None)],
        "append null": [(POLICY, APPEND, None)],
        "set empty": [(RETENTION, SET, "")],
        "bad value": [(RETENTION, SET, "soon")],
        "good and bad": [("flush.ms", SET, "9"), (RETENTION, SET, "soon")],
        "unknown key": [("no.such", SET, "1")],
        "delete an unknown key": [("no.such", DELETE, None)],
        "empty key": [("", SET, "1")],
        "operation 4": [(RETENTION, 4, "1")],
        "operation -1": [(RETENTION, -1, "1")],
        "key twice": [(RETENTION, SET, "1"), (RETENTION, SET, "2")],
        "set and delete": [(RETENTION, SET, "1"), (RETENTION, DELETE, None)],
        "nothing": [],
    }
    for step, changes in cases.items():
        topic.ask(step, *changes)
        topic.shown(step, RETENTION, "flush.ms", POLICY, THROTTLED)
    topic.ask("validated", (RETENTION, SET, "77"), only=True)
    topic.shown("validated", RETENTION)


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def wrong_resources(s: Session) -> None:
    retention = (RETENTION, SET, "1")
    for name in (s.name("nobody"), "", "a b"):
        Increments(s, name).ask(f"topic {name[-6:]!r}", retention)
    for name in ("7", "x", "-1"):
        Increments(s, name, BROKER).ask(f"broker {name!r}", ("log.retention.ms", SET, "1"))
    for kind in (0, 1, 3, 100, -1):
        Increments(s, "1", kind).ask(f"kind {kind}", retention)
    logger = ("root", SET, "NOISY")
    Increments(s, "1", LOGGER).ask("logger level", logger)
    Increments(s, "7", LOGGER).ask("logger elsewhere", ("root", SET, "INFO"))
    Increments(s, "1", LOGGER).ask("unknown logger", ("no.such", SET, "INFO"))
    topic = s.create()
    each = ia.AlterConfigsResource(TOPIC, topic, [ia.AlterableConfig(RETENTION, SET, "1")])
    s.ask("twice", ia.IncrementalAlterConfigsRequest([each, each]))
    bad = ia.AlterConfigsResource(TOPIC, s.name("nobody"), each.configs)
    s.ask("good and bad", ia.IncrementalAlterConfigsRequest([each, bad]))
    s.ask("none", ia.IncrementalAlterConfigsRequest([]))


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(1,))
def of_brokers(s: Session) -> None:
    for hint, name in (("one", "1"), ("all", "")):
        broker = Increments(s, name, BROKER)
        keys = ("log.retention.ms", "log.flush.interval.ms")
        broker.ask(f"{hint} dynamic", ("log.flush.interval.ms", SET, "12345"))
        broker.shown(f"{hint} dynamic", *keys)
        broker.ask(f"{hint} back", ("log.flush.interval.ms", DELETE, None))
        broker.shown(f"{hint} back", *keys)
        broker.ask(f"{hint} read-only", ("num.partitions", SET, "3"), only=True)
        broker.ask(f"{hint} per broker", ("listeners", SET, "PLAINTEXT://:1"), only=True)
        broker.ask(f"{hint} bad value", ("log.retention.ms", SET, "soon"), only=True)
        broker.ask(f"{hint} unknown", ("no.such", SET, "1"), only=True)
        broker.ask(f"{hint} append", ("log.cleanup.policy", APPEND, "compact"), only=True)
        broker.ask(f"{hint} null", ("log.retention.ms", SET, None), only=True)
    _defaults_of_topics(s)


def _defaults_of_topics(s: Session) -> None:
    """A dynamic default of the broker is visible in the configs of its topics."""
    topic = s.create()
    everywhere = Increments(s, "", BROKER)
    everywhere.ask("default set", ("log.roll.ms", SET, "7200000"))
    everywhere.shown("default", "log.roll.ms")
    request = description(TOPIC, topic, ["segment.ms"], synonyms=True)
    s.until(lambda response: response.results[0].configs[0].value == "7200000", request, 4)
    s.ask("seen by the topic", request, 4)
    everywhere.ask("default deleted", ("log.roll.ms", DELETE, None))
    s.until(lambda response: response.results[0].configs[0].value == "604800000", request, 4)
    s.ask("seen by the topic after", request, 4)


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(1,))
def of_thread_pools(s: Session) -> None:
    """The limits of one change to a number of threads."""
    threads = "log.cleaner.threads"
    for hint, name in (("one", "1"), ("all", "")):
        broker = Increments(s, name, BROKER)
        for value in ("0", "-1", "3", "4"):
            broker.ask(f"{hint} from 1 to {value}", (threads, SET, value), only=True)
        for value in ("2", "4", "5"):
            broker.ask(f"{hint} up to {value}", (threads, SET, value))
            broker.shown(f"{hint} up to {value}", threads)
        for value in ("1", "0", "11", "2", "10"):
            broker.ask(f"{hint} from 5 to {value}", (threads, SET, value), only=True)
        broker.ask(f"{hint} not back at once", (threads, DELETE, None), only=True)
        broker.ask(f"{hint} with another", (threads, SET, "1"), ("log.roll.ms", SET, "7200000"))
        broker.shown(f"{hint} with another", threads, "log.roll.ms")
        broker.ask(f"{hint} another alone", ("log.cleaner.backoff.ms", SET, "1000"), only=True)
        for value in ("2", "1"):
            broker.ask(f"{hint} down to {value}", (threads, SET, value))
            broker.shown(f"{hint} down to {value}", threads)
        broker.ask(f"{hint} back", (threads, DELETE, None))
        broker.shown(f"{hint} back", threads)
    s.ask("replaced", replacement(BROKER, "1", True, log_cleaner_threads="3"), 2)
