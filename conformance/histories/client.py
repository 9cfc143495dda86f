"""One client as a process: `python -m conformance.histories.client SETTINGS` (JSON).

Its events go to stdout, a line each; the line `stop` on stdin (or its end) ends it after the
operation at hand. It ends of its own accord, as an application would, when the library says
that nothing can be done with this instance any more; whoever started it starts the next one.

A role is what it does:

    txn        transactions that poll and send and commit offsets, some aborted
    txn-v2     the same by the second protocol of transactions: a program in Go, see clients.py
    producer   sends, idempotent
    plain      sends without idempotence
    consumer   polls; in a group it commits what it read

and `mode` how its consumer gets its keys: `subscribe` (a group shares the topics) or `assign`
(keys chosen at random now and then; from the group's offsets where there are transactions, from
where it was or from the beginning otherwise).
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import threading
from random import Random

from conformance.histories.reader import PlainReader
from conformance.histories.sender import PlainSender
from conformance.histories.settings import TXN, Recorder, Settings
from conformance.histories.transactor import Transactor

PAUSE_S_MAX = 0.03
ROLES = {
    TXN: Transactor,
    "producer": PlainSender,
    "plain": PlainSender,
    "consumer": PlainReader,
}


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # where does it hang?
    settings = Settings(**json.loads(sys.argv[1]))
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    random = Random(settings.seed * 1_000_003 + settings.process)
    client = ROLES[settings.role](settings, Recorder(settings.process), random)
    client.open()
    while not stop.is_set():
        client.step()
        stop.wait(random.random() * PAUSE_S_MAX)
    client.close()


if __name__ == "__main__":
    main()
