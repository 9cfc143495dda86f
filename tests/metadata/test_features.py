"""Finalized features: the levels of a new cluster, the checks of updates, and persistence."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata import znodes
from odradek.metadata.features import FEATURES, default_levels, with_levels
from odradek.metadata.image import MetadataImage
from odradek.metadata.store.interface import MetadataStore
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from tests.controller.test_controller import broker, run

NAME = "transaction.version"
BEGINNING = default_levels()


async def started(store: MetadataStore) -> Controller:
    controller = Controller(store, BrokerConfig.from_properties({}))
    await controller.start(broker())
    return controller


def test_new_cluster_begins_with_the_defaults() -> None:
    async def scenario() -> None:
        controller = await started(MemoryStore())
        assert dict(controller.image.features) == BEGINNING

    run(scenario())


def test_levels_are_published_and_survive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        controller = await started(SqliteStore(tmp_path / "s"))
        seen: list[MetadataImage] = []
        controller.subscribe(lambda delta, old, image: seen.append(image))
        before = controller.image.offset
        assert await controller.update_features(BEGINNING) is None
        assert seen == [], "the levels are the same"
        assert await controller.update_features({NAME: 1}) is None
        assert [dict(image.features) for image in seen] == [{**BEGINNING, NAME: 1}]
        assert controller.image.offset > before
        assert await controller.update_features({NAME: 0}) is None
        assert NAME not in controller.image.features
        await controller.update_features({NAME: 1})
        await controller.stop()
        controller = await started(SqliteStore(tmp_path / "s"))
        assert controller.image.features[NAME] == 1
        await controller.stop()

    run(scenario())


def test_validate_only_changes_nothing() -> None:
    async def scenario() -> None:
        controller = await started(MemoryStore())
        image = controller.image
        assert await controller.update_features({NAME: 0}, validate_only=True) is None
        assert controller.image is image

    run(scenario())


@pytest.mark.parametrize("change", [{NAME: 3}, {NAME: -1}, {"nonsense.version": 1}])
def test_level_that_is_not_supported_is_refused_and_nothing_changed(
    change: dict[str, int],
) -> None:
    async def scenario() -> None:
        controller = await started(MemoryStore())
        image = controller.image
        error = await controller.update_features(change)
        assert error is not None
        assert error.code is ErrorCode.INVALID_UPDATE_VERSION
        assert controller.image is image

    run(scenario())


def test_level_zero_is_not_listed() -> None:
    assert with_levels({NAME: 1}, {NAME: 0}) == {}
    with pytest.raises(KafkaError, match="has the levels 0 to 2, not 7"):
        with_levels({}, {NAME: 7})


def test_defaults_are_supported() -> None:
    for feature in FEATURES.values():
        assert feature.min_level <= feature.default_level <= feature.max_level


def test_node_has_kafkas_format() -> None:
    data = znodes.encode_features({NAME: 2})
    assert data == b'{"version":2,"status":1,"features":{"transaction.version":2}}'
    assert znodes.decode_features(data) == {NAME: 2}
