"""One client as a process: `python -m conformance.histories.client SETTINGS` (JSON).

The client writes its events to stdout, one a line. The line `stop` on stdin, or the end of stdin,
ends the client after the current operation. Like an application, the client also ends when the
library reports a fatal error for the instance. The parent process then starts the next instance.

The role determines the operations:

- `txn`: transactions that poll, send and commit offsets. Some are aborted.
- `txn-v2`: the same with the second transaction protocol, by a program in Go (see clients.py).
- `producer`: sends with idempotence.
- `plain`: sends without idempotence.
- `consumer`: polls. In a group it commits the offsets of its reads.
- `kcat`, `kafka-console`, `kafka-verifiable`: sends by these programs (see tool_senders.py).

`mode` determines how the consumer gets its keys. With `subscribe` a group shares the topics. With
`assign` the client sometimes assigns random keys to itself. A transactional client then starts from
the group's offsets. Another client starts from its last position or from the beginning.
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
from conformance.histories.tool_senders import SENDERS
from conformance.histories.transactor import Transactor

PAUSE_S_MAX = 0.03
ROLES = {
    TXN: Transactor,
    "producer": PlainSender,
    "plain": PlainSender,
    "consumer": PlainReader,
    **SENDERS,
}


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # to see where a client hangs
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
