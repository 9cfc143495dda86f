"""`odradek.testing.Registry` and its fixture: ready after the start, nothing left after `close`."""

from __future__ import annotations

import builtins
import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from odradek.registry.kafka_settings import InstanceFailure
from odradek.testing import Broker, Cluster, Registry

TIMEOUT_S = 120.0

LEFTOVERS = textwrap.dedent(
    """
    import gc, json, threading
    from collections import Counter
    from pathlib import Path
    import httpx
    from odradek.testing import Broker, Registry

    def threads():
        return sorted(f"{each.name} {each.ident}" for each in threading.enumerate())

    def descriptors():
        found = Counter()
        for each in Path("/proc/self/fd").iterdir():
            try:
                found[str(each.readlink()).split(":")[0]] += 1
            except FileNotFoundError:
                continue
        return found

    def use(broker):
        with Registry(broker) as registry:
            body = {"schema": '{"type":"string"}'}
            response = httpx.post(f"{registry.url}/subjects/a/versions", json=body, timeout=60)
            assert response.status_code == 200, response.text

    with Broker() as broker:
        use(broker)
        gc.collect()
        before = threads(), descriptors()
        use(broker)
        gc.collect()
        left = {"threads": sorted(set(threads()) - set(before[0]))}
        left["descriptors"] = dict(descriptors() - before[1])
        print(json.dumps(left))
    """
)

USERS_TEST = textwrap.dedent(
    """
    import pytest
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    @pytest.mark.parametrize("number", range(3))
    def test_schemas_of_one_test_are_not_seen_by_another(kafka_registry, number):
        client = SchemaRegistryClient({"url": kafka_registry.url})
        assert client.get_subjects() == []
        assert client.register_schema("pages-value", Schema('{"type":"string"}', "AVRO")) == 1
    """
)


def test_a_client_registers_and_reads_a_schema() -> None:
    with (
        Broker() as broker,
        Registry(broker) as registry,
        SchemaRegistryClient({"url": registry.url}) as client,
    ):
        schema_id = client.register_schema("pages-value", Schema('{"type":"string"}', "AVRO"))
        assert client.get_schema(schema_id).schema_str == '"string"'
        assert registry.is_writer


def test_the_address_of_another_kafka_is_accepted(kafka: Broker) -> None:
    with Registry(kafka.bootstrap_servers, compatibility="FULL") as registry:
        config = httpx.get(f"{registry.url}/config", timeout=TIMEOUT_S).json()
    assert config["compatibilityLevel"] == "FULL"


def test_schemas_remain_in_the_topic_of_the_broker(kafka: Broker) -> None:
    body = {"schema": '{"type":"string"}'}
    with Registry(kafka) as registry:
        httpx.post(f"{registry.url}/subjects/a/versions", json=body, timeout=TIMEOUT_S)
    with Registry(kafka) as registry:
        assert httpx.get(f"{registry.url}/subjects", timeout=TIMEOUT_S).json() == ["a"]


def test_a_registry_of_a_cluster_survives_the_kill_of_a_broker() -> None:
    with Cluster(3) as cluster, Registry(cluster) as registry:
        url = f"{registry.url}/subjects/a/versions"
        first = httpx.post(url, json={"schema": '{"type":"string"}'}, timeout=TIMEOUT_S)
        assert first.json()["id"] == 1
        leader = cluster.leader_of("_schemas")
        assert leader is not None
        cluster.kill(leader)
        deadline_s = time.monotonic() + TIMEOUT_S
        url = f"{registry.url}/subjects/b/versions"
        while True:
            second = httpx.post(url, json={"schema": '{"type":"long"}'}, timeout=TIMEOUT_S)
            if second.status_code == 200:
                break
            assert second.json()["error_code"] in (50001, 50002, 50004), second.text
            assert time.monotonic() < deadline_s, second.text
        assert second.json()["id"] == 2


def test_each_registry_of_a_process_is_ready_when_its_start_returns(kafka: Broker) -> None:
    for _ in range(3):
        kafka.reset()
        with Registry(kafka) as registry:
            assert httpx.get(registry.url, timeout=TIMEOUT_S).status_code == 200


def test_nothing_is_left_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFTOVERS],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"threads": [], "descriptors": {}}


def test_the_port_is_free_after_close(kafka: Broker) -> None:
    registry = Registry(kafka).start()
    port = int(registry.url.rpartition(":")[2])
    registry.close()
    registry.close()
    socket.create_server(("127.0.0.1", port)).close()
    with pytest.raises(RuntimeError, match="not running"):
        registry.url  # noqa: B018


def test_a_start_that_fails_raises_its_error_and_leaves_no_thread(kafka: Broker) -> None:
    kafka.create_topic("_schemas", partitions=2, config={"cleanup.policy": "compact"})
    with pytest.raises(InstanceFailure, match="2 partitions"):
        Registry(kafka).start()
    assert "odradek-registry" not in {each.name for each in threading.enumerate()}


def test_close_raises_the_error_of_a_registry_that_has_ended(kafka: Broker) -> None:
    registry = Registry(kafka).start()
    thread = registry._thread
    body = {"schema": '{"type":"string"}'}
    httpx.post(f"{registry.url}/subjects/a/versions", json=body, timeout=TIMEOUT_S)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics(["_schemas"])["_schemas"].result(TIMEOUT_S)
    kafka.create_topic("_schemas", config={"cleanup.policy": "compact"})
    assert thread is not None
    thread.join(TIMEOUT_S)
    with pytest.raises(InstanceFailure, match="Start the registry again"):
        registry.close()


def test_a_missing_extra_is_one_line(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name == "odradek.registry.server":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return imported(name, globals_, locals_, fromlist or (), level)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'odradek\[registry\]'"):
        Registry(kafka).start()


def test_the_fixture_gives_each_test_a_registry_without_schemas(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
