"""`python -m conformance.schema_registry`: the clients of other authors on Odradek's registry.

The registry keeps its schemas on the brokers at the given address.
"""

from conformance.harness import main
from conformance.schema_registry.cases import Calls, cases
from conformance.schema_registry.released import released_cases

CALLS = Calls()
CASES = (*cases(CALLS), *released_cases(CALLS))

if __name__ == "__main__":
    main("schema_registry", CASES)
