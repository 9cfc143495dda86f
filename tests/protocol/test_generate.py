"""The generated files agree with the definitions, and with Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.protocol import generate
from odradek.protocol.api_keys import API_RANGES, OWN_API_RANGES, ApiKey
from odradek.protocol.codec import decoder, encode
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.registry import message_class, request_class, response_class
from odradek.protocol.spec import load, paths, snake_case

DATA = Path(__file__).parents[1] / "data"

# APIs between controllers, which brokers never list, and telemetry, which needs a plugin.
NOT_ADVERTISED = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 71, 72, 73, 82}


def test_generated_files_are_up_to_date() -> None:
    generate.main(["--check"])


def test_check_names_a_stale_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = generate.generate()
    files[Path("api_keys.py")] += "# changed\n"
    del files[Path("messages/fetch_request.py")]
    assert generate.differing(files) == ["api_keys.py", "messages/fetch_request.py"]
    monkeypatch.setattr(generate, "generate", lambda: files)
    with pytest.raises(SystemExit, match=r"api_keys\.py, messages/fetch_request\.py"):
        generate.main(["--check"])


def test_the_version_ranges_equal_those_of_a_kafka_4_1_broker() -> None:
    data = (DATA / "ApiVersionsResponse-v4-kafka-4.1.0.bin").read_bytes()
    # Behind the correlation id: an ApiVersions response has header version 0 in every version.
    response, end = decoder(ApiVersionsResponse, 4)(memoryview(data), 4)
    assert end == len(data) == 786
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    # Produce is advertised from 0 for librdkafka's sake, and served from 3 (KAFKA-18659).
    assert advertised.pop(ApiKey.PRODUCE) == (0, 13)
    ours = {int(key): (low, high) for key, (low, high, _flexible) in API_RANGES.items()}
    assert ours.pop(ApiKey.PRODUCE) == (3, 13)
    # Version 2 of Kafka 4.2 is for requests between brokers (KIP-1228).
    assert advertised.pop(ApiKey.WRITE_TXN_MARKERS) == (1, 1)
    assert ours.pop(ApiKey.WRITE_TXN_MARKERS) == (1, 2)
    assert advertised == {k: v for k, v in ours.items() if k not in NOT_ADVERTISED}
    features = {f.name: f.max_version_level for f in response.finalized_features}
    assert features["metadata.version"] == 27


def test_every_api_in_range_has_a_request_and_a_response() -> None:
    for key in API_RANGES | OWN_API_RANGES:
        assert request_class(key).API_KEY == response_class(key).API_KEY == key


def test_keys_of_own_apis_are_far_above_those_of_kafka() -> None:
    assert {int(key) for key in OWN_API_RANGES} == {20_000, 20_001, 20_002, 20_003}
    assert max(API_RANGES) < 1_000
    for key in OWN_API_RANGES:
        assert request_class(key).SPEC.startswith("odradek/")


def test_own_fields_of_kafkas_messages_are_tagged_and_skipped_by_kafka() -> None:
    own = {
        (spec.name, field.name): field
        for spec in map(load, paths())
        for struct in (spec.body, *spec.structs)
        for field in struct.fields
        if field.own
    }
    assert set(own) == {
        ("EnvelopeRequest", "ListenerName"),
        ("RegisterBrokerRecord", "BootId"),
        ("RegisterBrokerRecord", "Drained"),
        ("BrokerRegistrationChangeRecord", "Drained"),
        ("DescribeClusterResponse", "Drained"),
    }
    for field in own.values():
        assert field.versions == field.tagged
        assert field.tag >= 10_000
        assert field.ignorable


def test_an_own_field_with_its_default_takes_no_bytes() -> None:
    assert encode(EnvelopeRequest(b"r", None, b"a"), 0) == b"\2r\0\2a\0"
    data = encode(EnvelopeRequest(b"r", None, b"a", "CLIENTS"), 0)
    assert data == b"\2r\0\2a\1\x90\x4e\x08\x08CLIENTS"


def test_apis_that_kafka_removed_have_no_class() -> None:
    assert ApiKey.LEADER_AND_ISR not in API_RANGES
    with pytest.raises(ModuleNotFoundError):
        request_class(ApiKey.LEADER_AND_ISR)
    with pytest.raises(ValueError, match="999"):
        request_class(999)


def test_names_of_acronyms_are_split_before_their_last_letter() -> None:
    assert snake_case("KRaftVersionFeature") == "k_raft_version_feature"
    assert snake_case("offsetForLeaderEpoch") == "offset_for_leader_epoch"
    assert message_class("KRaftVersionRecord").__module__.endswith("k_raft_version_record")


def test_importing_the_codec_imports_no_message_and_reads_no_definition() -> None:
    code = (
        "import sys; from odradek.protocol import codec, headers, framing, record_codec, spec;"
        "assert spec.load.cache_info().currsize == 0;"
        "found = [m for m in sys.modules if m.startswith('odradek.protocol.messages.')];"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
