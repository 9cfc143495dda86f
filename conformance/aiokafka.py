"""aiokafka: the common cases, and the cases of a killed member, of transactions and of fencing."""

from conformance.adapters.aio import AiokafkaClient
from conformance.client_cases import client_cases
from conformance.harness import main
from conformance.program_cases import member_case, python_program, static_case, transaction_cases

PROGRAM = python_program("aio")

CASES = (
    *client_cases(AiokafkaClient()),
    member_case("", PROGRAM),
    static_case("", PROGRAM),
    *transaction_cases("", PROGRAM),
)

if __name__ == "__main__":
    main("aiokafka", CASES)
