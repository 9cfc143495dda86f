"""One machine of a simulation: a disk, a clock, and the broker that runs on it.

A machine goes through incarnations of its broker. A stop ends one by the broker's own stop
sequence. A SIGKILL drops its loop and objects, and keeps the files. A power cut also loses the data
that was not synced, and gives the next incarnation another boot id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from odradek.broker.broker import BrokerServer
from odradek.config.broker import BrokerConfig
from odradek.environment.environment import Environment
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from tests.helpers.inline_cleaner import InlineCleaner
from tests.simulation.disk import Disk
from tests.simulation.ensemble import SimulatedEnsemble, SimulatedRandomness, SimulatedSession
from tests.simulation.event_loop import SimulatedClock, SimulatedLoop
from tests.simulation.executors import SimulatedExecutors, Threads
from tests.simulation.files import SimulatedFiles
from tests.simulation.graveyard import Graveyard
from tests.simulation.network import HostNetwork, SimulatedNetwork
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import SimulatedStore

PORT = 9092
DATA = "/data"
CLOCK_OFFSET_MS_MAX = 2_000
CLOCK_DRIFT_MAX = 0.001


@dataclass(slots=True)
class Incarnation:
    """One process of a machine: its loop and everything that ends with it."""

    number: int
    loop: SimulatedLoop
    threads: Threads
    files: SimulatedFiles
    store: SimulatedStore | SimulatedSession
    broker: BrokerServer
    starting: asyncio.Task[None]
    stopping: asyncio.Task[None] | None = None

    @property
    def serves(self) -> bool:
        """Whether the broker has started and is not stopping."""
        return (
            self.starting.done()
            and not self.starting.cancelled()
            and self.starting.exception() is None
            and self.stopping is None
        )


class Machine:
    """A host with a disk; see the module.

    Args:
        cluster: The store of the cluster that the broker belongs to. Default: a single broker.

    Attributes:
        process: The running incarnation, or None.
        on_step: Called after each step of the broker's loop.
        on_end: Called when an incarnation ends, with the way: stop, kill, power or failed.
        failed_process: The number of the last incarnation to which the disk has reported an I/O
            error, also while it loaded its logs, or -1.
        dropped: Paths of the files whose pages the page cache has dropped at that end, because an
            fsync had failed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: SimulatedNetwork,
        graveyard: Graveyard,
        node_id: int,
        config: Mapping[str, Any],
        on_step: Callable[[Machine], None],
        on_end: Callable[[Machine, str], None],
        cluster: SimulatedEnsemble | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.node_id = node_id
        self.host = f"broker-{node_id}"
        self.process: Incarnation | None = None
        self.incarnations = 0
        self.boots = 0
        self._boot_notes: dict[str, str] = {}
        self.loop_failures: list[str] = []
        self._graveyard = graveyard
        self._config = dict(config)
        self._on_step = on_step
        self.on_end = on_end
        self._rng = scheduler.stream(self.host)
        self.disk = Disk(scheduler.stream(f"disk {self.host}"))
        self.ensemble = MemoryEnsemble(EnsembleConditions(multi_bytes_max=None))
        self._cluster = cluster
        self._randomness = SimulatedRandomness(scheduler, self.host)
        offset_ms = self._rng.randint(-CLOCK_OFFSET_MS_MAX, CLOCK_OFFSET_MS_MAX)
        drift = self._rng.uniform(-CLOCK_DRIFT_MAX, CLOCK_DRIFT_MAX)
        self.clock = SimulatedClock(scheduler, offset_ms, drift)
        self.power_cut_pending = False
        self.failed_process = -1
        self.dropped: list[str] = []

    @property
    def address(self) -> tuple[str, int]:
        return self.host, PORT

    def partitions(self) -> list[Any]:
        """Return the partitions of the running broker."""
        services = getattr(self.process.broker, "services", None) if self.process else None
        return [] if services is None else list(services.replica_manager._partitions.values())

    @property
    def has_failed_directory(self) -> bool:
        """Whether the log directory is offline. Only a restart of the broker helps."""
        services = getattr(self.process.broker, "services", None) if self.process else None
        return services is not None and any(each.offline for each in services.log_manager.log_dirs)

    @property
    def has_failed_partition(self) -> bool:
        """Whether a partition refuses requests until the broker is started again."""
        return self.has_failed_directory or any(
            each.error is ErrorCode.KAFKA_STORAGE_ERROR for each in self.partitions()
        )

    def start(self) -> Incarnation:
        """Start the broker. `Incarnation.starting` is done when it serves, or has failed."""
        assert self.process is None
        self.incarnations += 1
        scheduler = self.scheduler
        name = f"{self.host}.{self.incarnations}"
        loop = SimulatedLoop(scheduler, name, self.clock)
        loop.failures = self.loop_failures
        loop.on_step = partial(self._on_step, self)
        threads = Threads(scheduler, loop, scheduler.stream(f"threads {name}"))
        boot_id = f"boot-{self.boots}"
        files = SimulatedFiles(
            self.disk, threads, self.clock, boot_id, self._boot_notes, self._killed_in_a_call
        )
        files.send_region = self.network.send_region
        executors = SimulatedExecutors(threads)
        environment = Environment(
            clock=self.clock,
            timers=LoopTimers(),
            files=files,
            network=HostNetwork(self.network, loop, self.host),
            executors=executors,
            randomness=self._randomness,
        )
        config = BrokerConfig(
            {
                "node.id": str(self.node_id),
                "log.dirs": DATA,
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                **self._config,
            }
        )
        store: SimulatedStore | SimulatedSession
        stores: dict[str, Any]
        if self._cluster is not None:
            store = SimulatedSession(self._cluster)
            stores = {"cluster_store": lambda: store}
        else:
            store = SimulatedStore(self.ensemble, self.disk, threads, loop)
            stores = {"store": store}
        broker = BrokerServer(
            config,
            environment=environment,
            start_cleaner_worker=lambda: InlineCleaner(files, self.clock),
            **stores,
        )
        starting = loop.create_task(broker.start())
        self.process = Incarnation(self.incarnations, loop, threads, files, store, broker, starting)
        starting.add_done_callback(self._started)
        scheduler.note(f"{self.host} starts")
        return self.process

    def _started(self, task: asyncio.Task[None]) -> None:
        process = self.process
        if process is None or process.starting is not task or task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.scheduler.note(f"{self.host} serves")
            if self._cluster is not None:
                process.loop.create_task(self._watch(process))
        elif not process.loop.stopped:
            self.scheduler.note(f"{self.host} cannot start: {error}")
            self._end("failed")

    async def _watch(self, process: Incarnation) -> None:
        """Stop the broker when it reports that it cannot continue, as its program does."""
        error = await process.broker.failed()
        self.scheduler.note(f"{self.host} gives up: {error}")
        self.stop()

    # -- the end of an incarnation -----------------------------------------------------------------

    def stop(self) -> None:
        """Stop the broker as SIGTERM does, if it has started."""
        process = self.process
        if process is None or not process.serves or process.loop.paused:
            return
        self.scheduler.note(f"{self.host} stops")
        process.stopping = process.loop.create_task(process.broker.stop())
        process.stopping.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        process = self.process
        if process is not None and process.stopping is task and not task.cancelled():
            error = task.exception()
            if error is not None:
                self.loop_failures.append(f"{self.host}: the stop failed: {error!r}")
            self._end("stop")

    def kill(self, *, power_cut: bool = False) -> None:
        """End the process at once: SIGKILL, or the loss of power."""
        if self.process is not None:
            self._end("power" if power_cut else "kill")

    def kill_in_a_call(self, changes: int, *, power_cut: bool = False) -> None:
        """Let the process die inside of one of its next changes of files."""
        if self.process is not None:
            self.process.files.kill_after = changes
            self.power_cut_pending = power_cut

    def _killed_in_a_call(self) -> None:
        self._end("power" if self.power_cut_pending else "kill")

    def _end(self, how: str) -> None:
        process = self.process
        assert process is not None
        if self.has_failed_directory or process.files.had_io_error:
            self.failed_process = process.number
        self.process = None
        self.power_cut_pending = False
        self.scheduler.note(f"{self.host} ends: {how}")
        self._graveyard.bury(process.loop, process)
        process.files.kill()
        process.store.end()
        self.network.process_ended(self.host, power_cut=how == "power")
        self.dropped = self.disk.drop_failed_pages()
        if how == "power":
            self.boots += 1
            self._boot_notes.clear()
            self.disk.power_cut()
        else:
            self.disk.locked.clear()
        self.on_end(self, how)

    def lose_power(self) -> None:
        """Lose the power after the process has ended, before the next one starts."""
        assert self.process is None
        self.scheduler.note(f"{self.host} loses power")
        self.boots += 1
        self._boot_notes.clear()
        self.disk.power_cut()

    @property
    def session(self) -> SimulatedSession | None:
        """The session of the running broker in the store of its cluster."""
        store = self.process.store if self.process is not None else None
        return store if isinstance(store, SimulatedSession) else None

    def pause(self) -> None:
        if self.process is not None:
            self.scheduler.note(f"{self.host} pauses")
            self.process.loop.pause()
            if self.session is not None:
                self.session.pause()

    def resume(self) -> None:
        if self.process is not None and self.process.loop.paused:
            self.scheduler.note(f"{self.host} continues")
            self.process.loop.resume()
            self.process.threads.resumed()
            if self.session is not None:
                self.session.resume()
