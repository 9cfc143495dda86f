"""`python -m conformance.schema_registry`: the clients of other authors on Odradek's registry.

The registry keeps its schemas on the brokers at the given address.
"""

from conformance.harness import main
from conformance.schema_registry.cases import Calls, cases

CASES = cases(Calls())

if __name__ == "__main__":
    main("schema_registry", CASES)
