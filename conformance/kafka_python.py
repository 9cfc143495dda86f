"""kafka-python: the common cases, and those of a killed member, transactions and fencing."""

from conformance.adapters.kafka_python import KafkaPythonClient
from conformance.client_cases import client_cases
from conformance.harness import main
from conformance.program_cases import member_case, python_program, static_case, transaction_cases

PROGRAM = python_program("kafka_python")

CASES = (
    *client_cases(KafkaPythonClient()),
    member_case("", PROGRAM),
    member_case("cooperative: ", python_program("kafka_python", "--cooperative")),
    static_case("", PROGRAM),
    *transaction_cases("", PROGRAM),
)

if __name__ == "__main__":
    main("kafka_python", CASES)
