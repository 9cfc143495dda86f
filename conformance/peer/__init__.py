"""The two brokers that are compared: Apache Kafka 4.3.0 and Odradek, each as a process of its own."""

from conformance.peer.artifacts import PeerUnavailable, java_command, kafka_class_path
from conformance.peer.server import BrokerProcess, start_kafka, start_odradek

__all__ = [
    "BrokerProcess",
    "PeerUnavailable",
    "java_command",
    "kafka_class_path",
    "start_kafka",
    "start_odradek",
]
