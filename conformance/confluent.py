"""confluent-kafka: the common cases, and those of a killed member, transactions and fencing."""

from conformance.adapters.confluent import ConfluentClient
from conformance.client_cases import client_cases
from conformance.harness import main
from conformance.program_cases import member_case, python_program, static_case, transaction_cases

PROGRAM = python_program("confluent")

CASES = (
    *client_cases(ConfluentClient()),
    member_case("", PROGRAM),
    member_case("cooperative: ", python_program("confluent", "--cooperative")),
    member_case("KIP-848: ", python_program("confluent", "--kip-848")),
    static_case("", PROGRAM),
    *transaction_cases("", PROGRAM),
)

if __name__ == "__main__":
    main("confluent", CASES)
