"""Rules of a simulated cluster: the writes of its controllers, and the images of its brokers.

`ClusterModel` sees each write when the ensemble executes it. It keeps the state that the controller
has given to each partition, and the processes that the controller has registered. The rules about
records are in `invariants.PartitionModel`. They are applied after the write of a controller and
after the step of a broker, for the partitions that these have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.store.interface import Check, Create, Delete, Operation, Performed, Set
from odradek.slicing import run_to_completion
from tests.simulation.coordinator_model import FAMILIES, CoordinatorModel, CoordinatorObserver
from tests.simulation.invariants import Chain, PartitionModel, PartitionState
from tests.simulation.world_settings import CLUSTER_TOPICS, FLUSHES

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from tests.simulation.machine import Machine
    from tests.simulation.observer import Observer

PartitionKey = tuple[bytes, int]
IMAGES_KEPT = 2_000
"""Images of so many metadata offsets are compared. A broker that lags further is not checked."""
OWN_PATHS = ("/brokers/topics/", "/config/", "/odradek/", znodes.PRODUCER_ID_BLOCK, "/admin/")
"""Nodes that only a controller writes, together with the position of the metadata."""

FLUSHED_TOPICS = frozenset(
    topic.name for topic in CLUSTER_TOPICS if FLUSHES.items() <= topic.configs.items()
)
"""Topics that flush each record for the whole run."""


@dataclass(slots=True)
class Topic:
    topic_id: bytes
    replicas: list[tuple[BrokerId, ...]]


class ClusterModel:
    """The state of one cluster.

    Args:
        report: Takes each violation.
        count: Counts events for the coverage.
        partitions: The models of all partitions, shared with the observers.

    Attributes:
        registered: The number of the process that the controller's record of each broker names.
        shrinks_by_lag: How many smaller ISRs leaders have proposed, because a follower lags.
        coordinators: The rules about the internal topics.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        count: Callable[[str], None],
        partitions: dict[PartitionKey, PartitionModel],
    ) -> None:
        self.partitions = partitions
        self.topics: dict[str, Topic] = {}
        self.registered: dict[int, int] = {}
        self.observers: Mapping[int, Observer] = {}
        self.controller_epoch = 0
        self.offset = 0
        self.shrinks_by_lag = 0
        self._report = report
        self._count = count
        self.coordinators = CoordinatorModel(report, count, self.find)
        self._is_prepared = False
        self._processes: dict[int, tuple[int, int]] = {}
        self._images: dict[tuple[int, int], tuple[str, MetadataImage]] = {}
        self._positions: dict[str, tuple[int, int, int]] = {}
        self._producer_ids: set[int] = set()
        self._next_producer_id = 0

    def find(self, topic: str, number: int) -> PartitionModel | None:
        """Return the rules of a partition, or None if it does not exist."""
        found = self.topics.get(topic)
        return None if found is None else self.partitions.get((found.topic_id, number))

    def coordinator_observer(self, machine: Machine) -> CoordinatorObserver:
        """Return the observer of the coordinators of a broker."""
        return CoordinatorObserver(machine, self.coordinators, self._report, self._count, self.find)

    # -- writes of controllers and brokers ---------------------------------------------------------

    def written(
        self, operations: Sequence[Operation], performed: Sequence[Performed], session_id: int
    ) -> None:
        """Follow a write that the ensemble has executed."""
        touched: dict[PartitionKey, None] = {}
        self._check_position(operations)
        registrations = []
        for operation, result in zip(operations, performed, strict=True):
            path = operation.path
            if isinstance(operation, Check):
                continue
            if path.startswith(znodes.TOPICS + "/"):
                self._topic_written(operation, result, touched)
            elif path.startswith(znodes.BROKER_IDS + "/") and isinstance(operation, Create):
                self._broker_registers(result, session_id)
            elif path.startswith(znodes.REGISTRATIONS + "/"):
                registrations.append(operation)
        for operation in registrations:
            # The losses of a process count until its successor is registered.
            self._registered(operation, touched)
        for key in touched:
            self.check(key)

    def _check_position(self, operations: Sequence[Operation]) -> None:
        """Each write of a controller has its epoch and the next metadata offset."""
        written = {each.path: each for each in operations if not isinstance(each, Check)}
        epoch = written.get(znodes.CONTROLLER_EPOCH)
        if isinstance(epoch, Set):
            if int(epoch.data) <= self.controller_epoch:
                self._report(f"controller epoch {epoch.data!r} after {self.controller_epoch}")
            self.controller_epoch = int(epoch.data)
            self._count("controller changes")
        position = written.get(znodes.METADATA)
        if isinstance(position, Create):
            self._is_prepared = True
        elif isinstance(position, Set):
            self._position_written(*znodes.decode_position(position.data))
        elif self._is_prepared and any(
            path.startswith(OWN_PATHS) and not path.startswith(znodes.STARTS + "/")
            for path in written
        ):
            self._report(f"a write without a position: {operations}")

    def _position_written(self, epoch: int, offset: int) -> None:
        if epoch != self.controller_epoch:
            self._report(f"the controller of epoch {epoch} writes in epoch {self.controller_epoch}")
        if offset != self.offset + 1:
            self._report(f"metadata offset {offset} after {self.offset}")
        self.offset = offset

    def _topic_written(
        self, operation: Operation, result: Performed, touched: dict[PartitionKey, None]
    ) -> None:
        name, _, rest = operation.path[len(znodes.TOPICS) + 1 :].partition("/")
        if isinstance(operation, Delete):
            if not rest and (topic := self.topics.pop(name, None)) is not None:
                for number in range(len(topic.replicas)):
                    if (model := self.partitions.get((topic.topic_id, number))) is not None:
                        model.is_deleted = True
            return
        assert isinstance(operation, (Create, Set))
        if not rest:
            topic_id, replicas = run_to_completion(znodes.decoding_topic_header(operation.data))
            self.topics[name] = Topic(bytes(topic_id), [each.replicas for each in replicas])
        elif rest.endswith("/state"):
            number = int(rest.split("/")[1])
            topic = self.topics[name]
            key = (topic.topic_id, number)
            model = self.partitions.setdefault(key, PartitionModel())
            model.name = f"{name}-{number}"
            value = znodes.decode(operation.data)
            state = PartitionState(
                replicas=tuple(topic.replicas[number]),
                leader=value["leader"],
                leader_epoch=value["leader_epoch"],
                partition_epoch=0 if result.stat is None else result.stat.version,
                isr=tuple(value["isr"]),
                elr=tuple(value.get("elr", ())),
                recovering=bool(value.get("leader_recovery_state", 0)),
                last_known=tuple(value.get("last_known_elr", ())),
            )
            self._state_changed(key, state)
            touched[key] = None

    def _state_changed(self, key: PartitionKey, state: PartitionState) -> None:
        model = self.partitions[key]
        before = model.state
        for problem in model.changed(state):
            self._report(f"{model.name}: {problem}")
        if before is None:
            return
        if state.leader < 0:
            self._check_kept(key, before, state)
        if state.leader_epoch > before.leader_epoch:
            self._count("leader changes" if state.leader >= 0 else "leaders lost")
            if state.recovering:
                self._count("unclean elections")
        if set(state.isr) != set(before.isr):
            self._count("ISR changes")
            if len(state.isr) > len(before.isr):
                self._count("ISR expansions")
        if state.elr and not before.elr:
            self._count("ELRs")

    def _check_kept(self, key: PartitionKey, before: PartitionState, state: PartitionState) -> None:
        """A partition without a leader keeps each member of ISR and ELR that has all records.

        Otherwise only a replica with lost records could lead. A member that lost its
        power, or whose disk had an error since the controller registered it, has to leave.
        """
        for member in set(before.members) - set(state.members):
            observer = self.observers.get(member)
            if observer is None or observer.kept(key) is None:
                continue
            machine = observer.machine
            has_failed = machine.failed_process >= self.registered.get(member, 0)
            if not has_failed and not machine.has_failed_directory:
                name = self.partitions[key].name
                self._report(f"{name}: {state} follows {before} without clean member {member}")

    def _broker_registers(self, result: Performed, session_id: int) -> None:
        for number, observer in self.observers.items():
            session = observer.machine.session
            if session is not None and session.session_id == session_id:
                assert result.stat is not None
                process = observer.machine.process
                assert process is not None
                self._processes[result.stat.czxid] = (number, process.number)
                self._count("registrations")

    def _registered(self, operation: Operation, touched: dict[PartitionKey, None]) -> None:
        broker = BrokerId(int(operation.path.rpartition("/")[2]))
        if isinstance(operation, Delete):
            self.registered.pop(broker, None)
            return
        assert isinstance(operation, (Create, Set))
        found = znodes.decode_registration(broker, operation.data)
        _, process = self._processes.get(found.epoch, (broker, -1))
        if self.registered.get(broker) != process:
            self.registered[broker] = process
            self.observers[broker].registered(process)
            for key, model in self.partitions.items():
                if model.state is not None and broker in model.state.members:
                    touched[key] = None

    # -- rules that concern several brokers --------------------------------------------------------

    def check(self, key: PartitionKey) -> None:
        """Check the committed ISR, the members of ISR and ELR, and the leader's maximal ISR."""
        model = self.partitions[key]
        state = model.state
        if state is None or model.is_deleted:
            return
        logs, starts = {}, {}
        for member in state.members:
            observer = self.observers.get(member)
            replica = None if observer is None else observer.kept(key)
            if replica is not None and replica.seen is not None:
                logs[member] = replica.seen.log_end, replica.chain
                starts[member] = replica.seen.log_start
        reached = {
            member: 0 if observer is None else observer.reached(key)
            for member in state.members
            for observer in (self.observers.get(member),)
        }
        for problem in model.check_reached(reached):
            self._report(f"{model.name}: {problem}")
        for problem in model.check_members(logs, starts):
            self._report(f"{model.name}: {problem}")
        leader = self.observers.get(state.leader)
        if leader is None or not self.is_registered(leader.machine):
            return
        maximal = leader.maximal_isr(key, state.leader_epoch)
        if maximal is not None and not set(state.isr) <= set(maximal):
            self._report(
                f"{model.name}: the ISR {list(state.isr)} is not in the maximal ISR "
                f"{sorted(maximal)} of leader {state.leader} in epoch {state.leader_epoch}"
            )

    def check_flushed(self, key: PartitionKey, topic: str) -> None:
        """Check that each running member of the ISR has flushed the committed records.

        The high watermark has risen in this step. With `flush.messages=1` the leader flushes before
        it counts its own records, and a follower flushes before it fetches from their end.
        """
        model = self.partitions[key]
        if topic not in FLUSHED_TOPICS or model.state is None or model.is_deleted:
            return
        self._count("flushes checked")
        for member in model.state.isr:
            observer = self.observers.get(member)
            if observer is None or not self.is_registered(observer.machine):
                continue
            path = observer.unflushed_below(key, model.high_watermark)
            if path:
                self._report(
                    f"{model.name}: records below {model.high_watermark} are committed, but member "
                    f"{member} of the ISR has not flushed them ({path}, {model.state})"
                )

    def compaction_checked(self) -> None:
        self._count("compacted logs checked")

    def is_registered(self, machine: Machine) -> bool:
        """Return whether the controller knows the running process of a broker."""
        process = machine.process
        return process is not None and self.registered.get(machine.node_id) == process.number

    def problems(self) -> list[str]:
        """Return the reasons why the cluster has not recovered yet."""
        found: list[str] = []
        for name, topic in self.topics.items():
            for number, replicas in enumerate(topic.replicas):
                problem = self._problem((topic.topic_id, number), replicas)
                if problem:
                    found.append(f"{name}-{number}: {problem}")
        return found

    def unended(self) -> list[str]:
        """Return the coordinators that do not serve, and the transactions that are open."""
        found = [f"transaction {name} is open" for name in self.coordinators.open_transactions()]
        for name in FAMILIES:
            topic = self.topics.get(name)
            for number in range(0 if topic is None else len(topic.replicas)):
                model = self.find(name, number)
                leader = -1 if model is None or model.state is None else model.state.leader
                if leader < 0 or not self.observers[leader].serves(name, number):
                    found.append(f"broker {leader} does not serve {name}-{number}")
        return found

    def _problem(self, key: PartitionKey, replicas: Sequence[int]) -> str:
        model = self.partitions.get(key)
        if model is None or model.state is None:
            return "it has no state"
        state = model.state
        if state.leader < 0:
            return f"no leader ({state})"
        if set(state.isr) != set(replicas):
            return f"the ISR is not full ({state})"
        logs, starts, chains = {}, {}, []
        for broker in replicas:
            observer = self.observers[broker]
            replica = observer.replica(key)
            if replica is None or replica.seen is None:
                return f"broker {broker} has no replica"
            seen = replica.seen
            if seen.leader_epoch != state.leader_epoch:
                return f"broker {broker} is in leader epoch {seen.leader_epoch} ({state})"
            if broker == state.leader and not seen.is_leader:
                return f"broker {broker} does not lead"
            starts[broker] = seen.log_start
            logs[broker] = (seen.log_end, seen.high_watermark)
            chains.append(replica.chain)
        if len(set(logs.values())) > 1 or not (
            model.is_compacted or _are_equal(chains, max(starts.values()))
        ):
            return f"the logs are not equal: {logs}, {starts}"
        if min(starts.values()) < starts[state.leader]:
            return f"a log starts below that of leader {state.leader}: {starts}"
        return ""

    # -- images ------------------------------------------------------------------------------------

    def image_of(self, machine: Machine, image: MetadataImage) -> None:
        """Compare a broker's image with another broker's image of the same metadata offset."""
        process = machine.process
        assert process is not None
        position = (process.number, image.controller_epoch, image.offset)
        last = self._positions.get(machine.host)
        if last == position:
            return
        self._positions[machine.host] = position
        is_running_on = last is not None and last[0] == position[0]
        # Each of the two by itself: a newer epoch does not excuse an older offset.
        if is_running_on and (position[1] < last[1] or position[2] < last[2]):
            self._report(f"{machine.host}: metadata went back from {last[1:]} to {position[1:]}")
        key = (0, image.offset)
        found = self._images.get(key)
        if found is None:
            self._images[key] = (machine.host, image)
            if len(self._images) > IMAGES_KEPT:
                del self._images[next(iter(self._images))]
            return
        self._count("images compared")
        if contents(found[1]) != contents(image):
            self._report(
                f"{machine.host} and {found[0]} have other images of offset {image.offset}: "
                f"{difference_of(found[1], image)}"
            )

    # -- producer ids ------------------------------------------------------------------------------

    def producer_id_given(self, producer_id: int, to: str) -> None:
        """Check that a producer id was not given before."""
        if producer_id in self._producer_ids:
            self._report(f"producer id {producer_id} was given out twice, now to {to}")
        self._producer_ids.add(producer_id)


def _are_equal(chains: Sequence[Chain], start: int) -> bool:
    """Return whether logs have the same batches from `start` on."""
    first, *others = (chain.digests_between(start, chain.end) for chain in chains)
    return all(other == first for other in others)


def contents(image: MetadataImage) -> MetadataImage:
    """Return what images of the same offset have in common."""
    return replace(image, controller_id=BrokerId(-1), cluster_id="", topics_offset=0)


def difference_of(first: MetadataImage, second: MetadataImage) -> str:
    """Name the fields in which two images differ."""
    names = first.__dataclass_fields__
    differing: list[Any] = [
        (name, getattr(first, name), getattr(second, name))
        for name in names
        if getattr(contents(first), name) != getattr(contents(second), name)
    ]
    return ", ".join(f"{name}: {a} / {b}" for name, a, b in differing)


Counts = Counter[str]
