"""`odradek cluster up`: a cluster of processes on this host, until SIGINT, SIGTERM or SIGHUP."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from odradek.cli.output import CommandError
from odradek.launcher.child import LaunchFailed
from odradek.launcher.cluster import ClusterProcesses, ProcessLine
from odradek.launcher.plan import ClusterPlan
from odradek.launcher.programs import ZooKeeperUnavailable

WATCH_S = 0.2
"""Interval of the checks for processes that have ended."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Reports:
    """The output of `cluster up`: text, or one JSON object a line."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def started(self, line: ProcessLine) -> None:
        text = f"{line.name}: pid {line.pid}, port {line.port}\n  {line.command_line}"
        self._print(text, {"event": "started", **line.as_dict()})

    def ready(self, plan: ClusterPlan) -> None:
        servers = plan.bootstrap_servers
        text = f"The cluster is ready: --bootstrap-server {servers}. Ctrl-C stops it."
        self._print(text, {"event": "ready", "bootstrap_servers": servers})

    def ended(self, line: ProcessLine, how: str) -> None:
        text = (
            f"{line.name} (pid {line.pid}) has ended: {how}. It is not restarted. Read {line.log}."
            " Its command line above starts it again."
        )
        event = {"event": "ended", "process": line.process, "id": line.id, "pid": line.pid}
        self._print(text, {**event, "how": how})

    def stopping(self, text: str) -> None:
        self._print(f"{text}.", {"event": "stopping", "text": text})

    def _print(self, text: str, event: dict[str, object]) -> None:
        print(json.dumps(event, ensure_ascii=False) if self._as_json else text, flush=True)


def run_cluster(plan: ClusterPlan, reports: Reports) -> None:
    """Start the processes, report those that end, and stop all on a signal.

    A second signal kills them.

    Raises:
        CommandError: The cluster did not start, or a program is missing.
        OSError: The directory cannot be written.
    """
    try:
        cluster = ClusterProcesses(plan)
    except ZooKeeperUnavailable as error:
        raise CommandError(f"{error} The option is --zookeeper HOST:PORT.") from None
    with cluster, _until_signal(cluster.send_kill) as is_ended:
        try:
            is_complete = cluster.start(is_ended.is_set)
        except LaunchFailed as error:
            raise CommandError(f"The cluster did not start: {error}.") from None
        for line in cluster.lines():
            reports.started(line)
        if is_complete:
            reports.ready(plan)
        while not is_ended.wait(WATCH_S):
            for line, how in cluster.ended():
                reports.ended(line, how)
        for line, how in cluster.ended():
            reports.ended(line, how)
        for text in cluster.stop():
            reports.stopping(text)


@contextmanager
def _until_signal(kill: Callable[[], None]) -> Iterator[threading.Event]:
    """Yield an event that the first signal sets. The second one calls `kill` in its handler."""
    ended = threading.Event()

    def received(number: int, frame: FrameType | None) -> None:
        if ended.is_set():
            kill()
        ended.set()

    former = {number: signal.signal(number, received) for number in SIGNALS}
    try:
        yield ended
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
