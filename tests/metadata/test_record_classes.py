"""The classes of records are imported with their first use, and none is forgotten."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek.metadata import delta, record_classes
from odradek.metadata.record_classes import RECORD_TYPES
from odradek.metadata.records import record_class


@pytest.mark.parametrize("api_key", RECORD_TYPES)
def test_class_has_the_name_and_the_key_of_its_type(api_key: int) -> None:
    found = record_class(api_key)
    assert found is not None
    assert (found.API_KEY, found.__name__) == (api_key, RECORD_TYPES[api_key])


def test_each_type_of_record_is_replayed() -> None:
    assert set(delta._REPLAYS) == set(RECORD_TYPES.values())


@pytest.mark.parametrize("name", ["BrokerEndpoint", "BrokerFeature", "EntityData"])
def test_structs_are_those_of_their_records(name: str) -> None:
    assert getattr(record_classes, name).__name__ == name


def test_other_names_do_not_exist() -> None:
    assert record_class(10_000) is None
    with pytest.raises(AttributeError, match="no attribute 'VotersRecord'"):
        record_classes.VotersRecord  # type: ignore[attr-defined]  # noqa: B018


def test_classes_are_imported_with_their_first_use() -> None:
    code = (
        "import sys; from odradek.metadata import image_records, delta, record_classes, records;"
        "loaded = lambda: [m for m in sys.modules if m.startswith('odradek.protocol.messages.')];"
        "assert not loaded(), loaded();"
        "record_classes.TopicRecord;"
        "assert loaded() == ['odradek.protocol.messages.topic_record'], loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
