"""The warning about an advertised address that other brokers do not reach."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.broker.own_address import AddressCheck, address_conflict, is_loopback
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from odradek.metadata.persistent import PersistentMap
from tests.helpers.cluster_brokers import ClusterBrokers

LISTENER = "BROKERS"
OTHER = BrokerId(2)
CHANGED = SimpleNamespace(brokers=SimpleNamespace(changed=True))


def at(host: str, port: int = 9093) -> Endpoint:
    return Endpoint(LISTENER, host, port)


def registration(
    broker: int, host: str, *, epoch: int = 1, fenced: bool = False, port: int = 9093
) -> BrokerRegistration:
    endpoints = (Endpoint("CLIENTS", "127.0.0.1", 9092), at(host, port))
    return BrokerRegistration(
        BrokerId(broker), host, port, None, endpoints, epoch=epoch, fenced=fenced
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "::1", "localhost", "LOCALHOST"])
def test_a_loopback_address_is_wrong_if_another_broker_has_another_host(host: str) -> None:
    found = address_conflict(at(host), at("10.0.0.2"), OTHER)
    assert found is not None
    for part in (f"{host}:9093", LISTENER, "broker 2", "10.0.0.2:9093", "advertised.listeners"):
        assert part in found
    assert "\n" not in found
    assert address_conflict(at("10.0.0.2"), at(host), OTHER) is None


def test_brokers_of_one_machine_may_have_loopback_addresses() -> None:
    assert address_conflict(at("127.0.0.1", 1), at("127.0.0.1", 2), OTHER) is None
    assert address_conflict(at("127.0.0.1", 1), at("localhost", 2), OTHER) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "kafka.example"])
def test_two_brokers_with_the_same_address_connect_to_themselves(host: str) -> None:
    found = address_conflict(at(host), at(host), OTHER)
    assert found is not None
    assert "the same address" in found
    assert "broker 2" in found


@pytest.mark.parametrize("host", ["kafka.example", "10.0.0.1", "2001:db8::1", "localhost.example"])
def test_other_hosts_are_not_looked_up(host: str) -> None:
    assert not is_loopback(host)
    assert address_conflict(at(host), at("10.0.0.2"), OTHER) is None


def test_each_registration_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    check = AddressCheck(BrokerId(1), LISTENER)

    def lines(*brokers: BrokerRegistration) -> int:
        caplog.clear()
        image = MetadataImage(brokers=PersistentMap({each.id: each for each in brokers}))
        check.image_changed(CHANGED, image, image)  # type: ignore[arg-type]
        return len(caplog.records)

    own = registration(1, "127.0.0.1")
    with caplog.at_level(logging.WARNING):
        assert lines(own) == 0
        assert lines(own, registration(2, "10.0.0.2", fenced=True)) == 0
        assert lines(own, registration(2, "10.0.0.2"), registration(3, "10.0.0.3")) == 1
        assert lines(own, registration(3, "10.0.0.3")) == 0
        assert lines(registration(1, "127.0.0.1", epoch=2), registration(2, "10.0.0.2")) == 1
        assert lines(registration(1, "10.0.0.1", epoch=3), registration(2, "10.0.0.2")) == 0


def test_a_broker_of_a_cluster_reports_its_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        cluster = ClusterBrokers(tmp_path)
        try:
            await cluster.start(1)
            cluster.config["advertised.listeners"] = "CLIENTS://192.0.2.1:1,BROKERS://192.0.2.1:2"
            await cluster.start(2)
            await cluster.until(lambda: "broker 2 is at 192.0.2.1:2" in caplog.text)
        finally:
            cluster.close_channels()
            await cluster.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
