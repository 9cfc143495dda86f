"""Groups of another protocol type than consumers, and consumers with unreadable metadata."""

from __future__ import annotations

from odradek.errors import ErrorCode
from tests.coordinator.group.group_machine import Machine

E = ErrorCode


def test_group_of_connect_workers_has_its_own_metadata_format():
    machine = Machine()
    options = {"protocol_type": "connect", "protocols": {"sessioned": b"\xff\x00", "eager": b""}}
    first, second = machine.stable(2, **options)
    group = machine.group
    assert (group.protocol_type, group.protocol_name) == ("connect", "sessioned")
    assert group.subscribed_topics is None
    assert not group.is_subscribed_to("t")
    assert {m.member_id: m.assignment for m in group.members.values()} == {
        first: first.encode(),
        second: second.encode(),
    }
    assert group.validate_offset_delete() is E.NON_EMPTY_GROUP
    restarted = machine.restarted()
    assert restarted.group.protocol_type == "connect"
    assert restarted.heartbeat(second) is E.NONE


def test_unreadable_subscription_counts_as_a_subscription_to_all_topics():
    machine = Machine()
    machine.stable(protocols={"range": b"\x00"})
    assert machine.group.subscribed_topics is None
    assert machine.group.is_subscribed_to("whatever")
