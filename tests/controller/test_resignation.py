"""Tests of brokers that are elected and cannot take over: they leave the term to another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from odradek.controller import cluster_controller
from odradek.controller.broker_changes import Policies
from odradek.controller.cluster_controller import ClusterController
from odradek.controller.controller_settings import ControllerSettings
from odradek.controller.loading import LoadedMetadata, MetadataChanged
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.image import MetadataImage
from odradek.metadata.store.interface import (
    Delete,
    MetadataStore,
    Operation,
    StoreFailure,
    UnknownOutcomeError,
    Written,
)
from tests.controller.cluster_nodes import Node, World
from tests.controller.test_cluster_controller import _create, _stable, running
from tests.controller.test_controller_events import _call


def _failing(_: MetadataImage) -> Policies:
    raise RuntimeError("a defect of this broker")


@contextmanager
def _unable(controller: ClusterController) -> Iterator[None]:
    """Let all take-overs of a controller fail."""
    policies = controller._policies.of
    controller._policies.of = _failing  # type: ignore[method-assign]
    yield
    controller._policies.of = policies  # type: ignore[method-assign]


def _epoch(world: World) -> int:
    return int(world.ensemble.tree.node(znodes.CONTROLLER_EPOCH).data)


def _elect(world: World, node: Node) -> None:
    """End the session of the active controller, so that `node` is elected next."""
    active = world.active()
    assert active is not None
    assert active is not node
    others = [each for each in world.nodes.values() if each not in (node, active)]
    for each in others:
        world.run(_blocked(world, each, True))
    world.run(active.kill())
    epoch = _epoch(world)
    while _epoch(world) == epoch:
        world.advance(0.5)
    for each in others:
        world.run(_blocked(world, each, False))


async def _blocked(world: World, node: Node, is_blocked: bool) -> None:
    call = world.ensemble.block if is_blocked else world.ensemble.unblock
    call(node.store.session_id)


def _standby(world: World) -> list[Node]:
    active = world.active()
    return [node for node in world.nodes.values() if node is not active]


def test_broker_that_cannot_take_over_leaves_the_term_to_another_one() -> None:
    with running() as world:
        _create(world)
        unable, able = _standby(world)
        with _unable(unable.controller):
            _elect(world, unable)
            epoch = _epoch(world)
            world.advance(60)
            assert world.active() is able
            assert unable.controller.controller_id == able.id
            assert _epoch(world) <= epoch + 4
            _stable(world)


def test_broker_whose_term_a_defect_ended_leaves_the_next_one_to_another() -> None:
    with running() as world:
        active = world.active()
        assert active is not None

        async def defect() -> None:
            raise RuntimeError("a defect in an event")

        async def queue() -> None:
            active.controller._queue(defect)

        world.run(queue())
        world.advance(3)
        assert world.active() not in (None, active)
        _stable(world)


@pytest.mark.parametrize("failure", [RuntimeError("a defect"), asyncio.CancelledError()])
def test_broker_whose_resignation_fails_contends_again(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(1) as world:
        (node,) = world.nodes.values()
        multi = node.store.multi

        async def fail(operations: Sequence[Operation]) -> list[Written]:
            if operations[-1] == Delete(znodes.CONTROLLER):
                raise failure
            return await multi(operations)

        async def defect() -> None:
            raise RuntimeError("a defect in an event")

        epoch = node.controller.epoch
        with monkeypatch.context() as patched, _unable(node.controller):
            patched.setattr(node.store, "multi", fail)
            _call(world, node.controller._queue, defect)
            world.advance(5)
        world.advance(30)
        assert world.active() is node
        assert node.controller.epoch > epoch


def test_broker_that_is_alone_takes_over_when_it_can_again() -> None:
    with running(2) as world:
        (node,) = _standby(world)
        with _unable(node.controller):
            _elect(world, node)
            world.advance(20)
            assert world.active() is None
            assert world.ensemble.tree.find(znodes.CONTROLLER) is None
        world.advance(2 * ControllerSettings().resigned_wait_max_ms / 1000)
        assert world.active() is node
        assert node.controller._failed_terms == 0


def test_broker_that_leaves_others_the_first_chance_follows_the_one_that_is_elected() -> None:
    with running() as world:
        waiting, other = _standby(world)
        active = world.active()
        assert active is not None
        waiting.controller._failed_terms = 5
        world.run(_blocked(world, other, True))
        world.run(active.kill())
        while world.ensemble.tree.find(znodes.CONTROLLER) is not None:
            world.advance(0.1)
        world.advance(1)
        assert waiting.controller._armed.is_armed("contention")
        world.run(_blocked(world, other, False))
        while world.active() is None:
            world.advance(0.1)
        world.advance(0.5)
        assert world.active() is other
        assert waiting.controller.controller_id == other.id


@contextmanager
def _all_unable(world: World) -> Iterator[list[ClusterController]]:
    """Let all take-overs fail, and the session of the active controller expire."""
    controllers = [node.controller for node in world.nodes.values()]
    with ExitStack() as unable:
        for controller in controllers:
            unable.enter_context(_unable(controller))
        active = world.active()
        assert active is not None
        world.ensemble.expire(active.store.session_id)
        yield controllers


def test_brokers_that_all_fail_contend_ever_more_rarely_and_not_together() -> None:
    with running() as world:
        with _all_unable(world) as controllers:
            world.advance(60)
            waits = {controller._resigned_wait_ms() for controller in controllers}
            assert len(waits) > 1
            limit = ControllerSettings().resigned_wait_max_ms
            assert all(limit <= wait <= 2 * limit for wait in waits)
            epoch = _epoch(world)
            world.advance(160)
            assert 0 < _epoch(world) - epoch <= 3 * 160_000 // limit
        world.advance(2 * limit / 1000)
        _stable(world)


def test_failed_terms_are_forgotten_after_a_term_of_another_broker() -> None:
    """All brokers fail for some time. The next election, after a good term, does not wait."""
    with running() as world:
        with _all_unable(world) as controllers:
            world.advance(90)
            assert max(controller._failed_terms for controller in controllers) > 4
        world.advance(600)
        active = world.active()
        assert active is not None
        world.run(active.kill())
        while world.ensemble.tree.find(znodes.CONTROLLER) is not None:
            world.advance(0.1)
        world.advance(1)
        assert world.active() not in (None, active)


@pytest.mark.parametrize(
    ("error", "is_counted"),
    [
        (StoreFailure("the connection was lost"), False),
        (UnknownOutcomeError("the connection was lost"), False),
        (MetadataChanged("a node has vanished"), True),
    ],
)
def test_take_over_that_the_connection_ended_does_not_lengthen_the_wait(
    monkeypatch: pytest.MonkeyPatch, error: Exception, is_counted: bool
) -> None:
    with running() as world:
        (node, other) = _standby(world)
        failures: list[BrokerId] = []

        async def fail(
            store: MetadataStore, cluster_id: str, node_id: BrokerId, standby: MetadataImage
        ) -> LoadedMetadata:
            failures.append(node_id)
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(cluster_controller, "read_metadata", fail)
            active = world.active()
            assert active is not None
            world.run(active.kill())
            while failures.count(node.id) < 3 or failures.count(other.id) < 3:
                world.advance(0.1)
            counts = {node.controller._failed_terms, other.controller._failed_terms}
            assert (min(counts) > 1) is is_counted
            assert is_counted or counts == {1}
        world.advance(2 * ControllerSettings().resigned_wait_max_ms / 1000)
        assert world.active() in (node, other)
