"""The two brokers that are compared, Apache Kafka 4.3.0 and Odradek, as child processes."""

from testkit.peer.artifacts import PeerUnavailable, java_command, kafka_class_path
from testkit.peer.server import BrokerProcess, start_kafka, start_odradek

__all__ = [
    "BrokerProcess",
    "PeerUnavailable",
    "java_command",
    "kafka_class_path",
    "start_kafka",
    "start_odradek",
]
