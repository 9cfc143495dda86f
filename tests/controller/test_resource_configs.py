"""Configs of groups and client metrics: published, and kept over a restart for any name."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.sqlite import SqliteStore
from tests.controller.test_controller import broker, run

GROUP, METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS
SESSION = "consumer.session.timeout.ms"
NAMES = ["g", "a/b", "<default>", "ä ö%2F", "~*.-_", ".."]


def change(kind: ResourceType, name: str, key: str, value: str | None) -> ConfigChange:
    op = OpType.DELETE if value is None else OpType.SET
    return ConfigChange(kind, name, [ConfigOp(key, op, value)])


async def started(path: Path) -> Controller:
    controller = Controller(SqliteStore(path), BrokerConfig.from_properties({}))
    await controller.start(broker())
    return controller


def test_configs_survive_a_restart_and_end_with_their_last_value(tmp_path: Path) -> None:
    async def scenario() -> None:
        controller = await started(tmp_path / "s")
        changes = [
            *(change(GROUP, name, SESSION, "50000") for name in NAMES),
            *(change(METRICS, name, "interval.ms", "500") for name in NAMES),
        ]
        assert await controller.alter_configs(changes) == [None] * len(changes)
        await controller.stop()
        controller = await started(tmp_path / "s")
        image = controller.image
        assert image.group_configs == {name: {SESSION: "50000"} for name in NAMES}
        assert image.client_metrics == {name: {"interval.ms": "500"} for name in NAMES}
        removed = [change(GROUP, name, SESSION, None) for name in NAMES]
        assert await controller.alter_configs(removed) == [None] * len(removed)
        assert controller.image.group_configs == {}
        await controller.stop()
        controller = await started(tmp_path / "s")
        assert controller.image.group_configs == {}
        assert set(controller.image.client_metrics) == set(NAMES)
        await controller.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("a.b-c_1", "a.b-c_1"),
        ("a b", "a%20b"),
        ("*", "%2A"),
        ("~", "%7E"),
        ("ä/ö", "%C3%A4%2F%C3%B6"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
    ],
)
def test_names_are_written_as_kafka_writes_them(name: str, node: str) -> None:
    assert znodes.sanitized(name) == node
    assert znodes.unsanitized(node) == name
