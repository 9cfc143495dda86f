"""Timestamp lookups at a steady rate, as a process of its own; prints one JSON object.

python -m benchmarks.lookups ADDRESS TOPIC --records N --first-ms MS --rate N --seconds S --seed N

Record `i` of the first N records of partition 0 has the timestamp MS + i milliseconds. Each request
is ListOffsets with the timestamp of a record chosen at random, and the response must have the
offset of that record.
"""

from __future__ import annotations

import argparse
import json
import time
from random import Random

from testkit.requests import list_offsets
from testkit.wire import WireClient

VERSION = 7


def run(
    address: str, topic: str, records: int, first_ms: int, rate: int, seconds: float, seed: int
) -> dict[str, object]:
    """Return the time from each request to its response, in microseconds.

    A request whose turn passed while the client waited for a response is sent at once.
    """
    random = Random(seed)
    taken: list[int] = []
    with WireClient(address) as client:
        client.call(list_offsets(first_ms, topic), VERSION)
        began = time.perf_counter()
        for number in range(int(rate * seconds)):
            offset = random.randrange(records)
            request = list_offsets(first_ms + offset, topic)
            while (wait := began + number / rate - time.perf_counter()) > 0:
                time.sleep(wait)
            sent = time.perf_counter()
            found = client.call(request, VERSION).topics[0].partitions[0]
            taken.append(round((time.perf_counter() - sent) * 1e6))
            if (found.offset, found.timestamp) != (offset, first_ms + offset):
                raise SystemExit(f"offset {found.offset} instead of {offset}")
        elapsed = time.perf_counter() - began
    return {"microseconds": taken, "rate": len(taken) / elapsed}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookups")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--first-ms", type=int, required=True)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    print(json.dumps(run(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
