"""Compares verdicts on many generated pairs: `make evidence-registry-verdicts`.

`python -m tests.registry.verdicts KIND --pairs N --seed S` prints the counts as JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

from testkit.result_line import print_result
from tests.registry.avro_verdicts import assert_verdicts_are_those_of_java
from tests.registry.json_documents import URIS
from tests.registry.json_verdicts import assert_compatible_pairs_are_sound, changed_pairs
from tests.registry.proto_verdicts import assert_compatible_readers_read_all


def _json(seed: int, pairs: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for draft in sorted(URIS):
        random = Random(f"{seed} {draft}")
        generated = changed_pairs(random, draft, pairs // len(URIS))
        counts += assert_compatible_pairs_are_sound(random, generated, (draft, draft))
    return counts


KINDS: dict[str, Callable[[int, int], Counter[str]]] = {
    "avro": assert_verdicts_are_those_of_java,
    "json": _json,
    "protobuf": assert_compatible_readers_read_all,
}


def main() -> int:
    """Compare pairs of one kind. Return 1 if a verdict was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.registry.verdicts")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)

    def result() -> dict[str, int]:
        counts = KINDS[options.kind](options.seed, options.pairs)
        return {"seed": options.seed, "pairs": options.pairs, **counts}

    return print_result(result)


if __name__ == "__main__":
    sys.exit(main())
