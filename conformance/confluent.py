"""The common cases on confluent."""

from conformance.adapters.confluent import ConfluentClient
from conformance.client_cases import client_cases
from conformance.harness import main

CASES = client_cases(ConfluentClient())

if __name__ == "__main__":
    main("confluent", CASES)
