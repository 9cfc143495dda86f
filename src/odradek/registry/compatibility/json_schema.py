"""Whether data of one JSON Schema can be read with another: Confluent's rules, made sound. Pure.

A pair is compatible only if the reader accepts every value that the writer accepts. The modules
``json_*`` list where this differs from Confluent's verdict.
"""

from __future__ import annotations

from odradek.registry.compatibility.json_comparison import ComparisonLimit, compare_schemas
from odradek.registry.compatibility.json_differences import JsonDifference, incompatible
from odradek.registry.request_budget import Spend, unlimited
from odradek.registry.schemas.json_schema import ParsedJsonSchema


def check(
    reader: ParsedJsonSchema, writer: ParsedJsonSchema, spend: Spend = unlimited
) -> list[str]:
    """Return the reasons why the reader may reject values of the writer. Empty: it accepts them.

    Each reason has the name of a difference and a JSON pointer. It contains ``%s`` twice: for the
    role of the reader and then for that of the writer. `spend` is called with the cost of each pair
    of subschemas.
    """
    try:
        found = differences(reader, writer, spend)
    except ComparisonLimit as limit:
        description = f"The %s schema and the %s schema are too complex to compare: {limit}"
        return [f'{{errorType:"COMPARISON_LIMIT", description:"{description}"}}']
    return [str(difference) for difference in incompatible(found)]


def differences(
    reader: ParsedJsonSchema, writer: ParsedJsonSchema, spend: Spend = unlimited
) -> tuple[JsonDifference, ...]:
    """Return all differences, also the compatible ones, as far as they are kept.

    Raises:
        ComparisonLimit: The schemas are too large or too deep to be compared.
    """
    if reader.canonical == writer.canonical and reader.references == writer.references:
        return ()
    return compare_schemas(writer.root, reader.root, spend).differences
