"""The common cases on kafka-python."""

from conformance.adapters.kafka_python import KafkaPythonClient
from conformance.client_cases import client_cases
from conformance.harness import main

CASES = client_cases(KafkaPythonClient())

if __name__ == "__main__":
    main("kafka_python", CASES)
