"""The common cases on aiokafka."""

from conformance.adapters.aio import AiokafkaClient
from conformance.client_cases import client_cases
from conformance.harness import main

CASES = client_cases(AiokafkaClient())

if __name__ == "__main__":
    main("aiokafka", CASES)
