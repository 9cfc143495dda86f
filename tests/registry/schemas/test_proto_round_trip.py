"""The printed text of a descriptor, compiled again, gives an equal descriptor."""

from __future__ import annotations

import base64
from random import Random

import pytest
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.registry.compatibility.protobuf import differences
from odradek.registry.schemas.protobuf import ParsedProtobuf, parse
from tests.registry.proto_equality import comparable
from tests.registry.proto_models import descriptor
from tests.registry.proto_pairs import SchemaMaker, is_valid, proto_pairs

EXAMPLES = 10
"""Each example runs protoc two or three times, which takes 0.1 s a run."""

KNOWN = [
    each.DESCRIPTOR
    for each in (
        *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, field_mask_pb2),
        *(source_context_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2),
    )
]

OPTIONS = """\
syntax = "proto3";
package io.confluent.shop;
import "confluent/meta.proto";
import "google/protobuf/descriptor.proto";
extend google.protobuf.FileOptions { Rule file = 50001; }
extend google.protobuf.FieldOptions {
  Rule rule = 50001; repeated string tags = 50002; Level level = 50003; double weight = 50004;
  repeated Rule rules = 50005; bytes raw = 50006; float ratio = 50007; sint64 big = 50008;
}
extend google.protobuf.EnumValueOptions { bool flag = 50001; }
extend google.protobuf.OneofOptions { uint64 bits = 50001; }
extend google.protobuf.ServiceOptions { string name = 50001; }
extend google.protobuf.MethodOptions { Rule rule_of_method = 50001; }
option (file) = { text: "a" };
option optimize_for = SPEED;
option (.confluent.file_meta) = { doc: "d" params: [{ key: "b" value: "1" }, { key: "a" }] };
message Rule {
  string text = 1; repeated int32 levels = 2; map<string, bool> flags = 3; float limit = 4;
  bytes raw = 5; Level level = 6; Rule inner = 7; repeated Rule rules = 8;
}
enum Level { LOW = 0; HIGH = 1 [(flag) = true, deprecated = false]; }
message M {
  option (.confluent.message_meta).doc = "d";
  option deprecated = true;
  string a = 1 [
    (rule) = {
      text: "x\\n'\\"\\001é" levels: [1, -2] flags { key: "k" value: true } limit: 0.5
      raw: "\\377\\"" level: HIGH inner {} rules [{ text: "y" }, {}]
    },
    (tags) = "p", (tags) = "q", (level) = HIGH, (weight) = -inf, (rules) = {}, (rules) = {level: 1},
    (raw) = "\\000\\177", (ratio) = 0.1, (big) = -9223372036854775808, debug_redact = true
  ];
  oneof o { option (bits) = 18446744073709551615; int32 b = 2; }
}
service S {
  option (name) = "n";
  rpc Get (M) returns (stream M) { option (rule_of_method) = {}; option deprecated = true; }
}
"""

INTERLEAVED = """\
syntax = "proto2";
message M {
  message A { enum X { Y = 0; } }
  map<string, A> first = 1;
  message B {}
  optional group G = 2 { message Inside {} map<int32, B> of_b = 1; }
  message C {}
  map<int32, C> last = 3;
  message D {}
  oneof choice { group H = 4 {} int32 number = 5; }
}
"""


def _as_base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def _file(schema: ParsedProtobuf) -> FileDescriptorProto:
    return comparable(schema.files()[-1])


def _assert_stable(schema: ParsedProtobuf) -> None:
    """Check that both texts of a schema give the schema again."""
    again = parse(schema.canonical, ())
    assert again.canonical == schema.canonical
    assert _file(again) == _file(schema)
    normal = parse(schema.normalized(), ())
    assert normal.normalized() == schema.normalized()
    moved = {each.kind.value for each in differences(normal, schema)} - {"MESSAGE_MOVED"}
    assert not moved


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_a_random_descriptor_is_the_same_after_a_round_trip(random: Random) -> None:
    file = SchemaMaker(random).file()
    if not is_valid(file):
        return
    described = descriptor(file)
    schema = parse(_as_base64(described), ())
    assert _file(schema) == comparable(described)
    _assert_stable(schema)


@pytest.mark.parametrize("seed", range(3))
def test_a_mutated_descriptor_is_the_same_after_a_round_trip(seed: int) -> None:
    for pair in proto_pairs(Random(seed), 8):
        described = descriptor(pair.reader)
        assert _file(parse(_as_base64(described), ())) == comparable(described)


@pytest.mark.parametrize("known", KNOWN, ids=lambda each: each.name)
def test_a_descriptor_of_google_is_the_same_after_a_round_trip(known: object) -> None:
    described = FileDescriptorProto.FromString(known.serialized_pb)  # type: ignore[attr-defined]
    schema = parse(_as_base64(described), ())
    assert _file(schema) == comparable(described)
    _assert_stable(schema)


def test_custom_options_are_the_same_after_a_round_trip() -> None:
    schema = parse(OPTIONS, ())
    _assert_stable(schema)
    from_descriptor = parse(schema.formatted("serialized"), ())
    assert _file(from_descriptor) == _file(schema)
    assert from_descriptor.normalized() == schema.normalized()


def test_nested_messages_keep_their_positions() -> None:
    """A record names the type of a nested message by its position."""
    schema = parse(INTERLEAVED, ())
    (message,) = schema.files()[-1].message_type
    names = ["A", "FirstEntry", "B", "G", "C", "LastEntry", "D", "H"]
    assert [each.name for each in message.nested_type] == names
    _assert_stable(schema)
    from_descriptor = parse(schema.formatted("serialized"), ())
    assert _file(from_descriptor) == _file(schema)


def test_an_edition_is_the_same_after_a_round_trip() -> None:
    text = """\
edition = "2023";
package p;
option features.field_presence = IMPLICIT;
message M {
  reserved foo, bar;
  reserved 9;
  int32 a = 1;
  int32 b = 2 [features.field_presence = LEGACY_REQUIRED];
  M m = 3 [features.message_encoding = DELIMITED];
  repeated int32 c = 4 [features.repeated_field_encoding = EXPANDED];
}
enum E { option features.enum_type = CLOSED; reserved -1, 5 to max; ONE = 1; }
"""
    schema = parse(text, ())
    assert schema.canonical.startswith('edition = "2023";\npackage p;\n')
    _assert_stable(schema)


def test_a_group_of_a_oneof_keeps_its_position() -> None:
    """The text has the fields of a message before its oneofs, unless positions would change."""
    text = """\
syntax = "proto2";
message M {
  map<string, int32> first = 1;
  message A {}
  oneof choice { group G = 2 {} int32 number = 3; }
  message B {}
  map<int32, B> last = 4;
}
"""
    schema = parse(text, ())
    (message,) = schema.files()[-1].message_type
    names = ["FirstEntry", "A", "G", "B", "LastEntry"]
    assert [each.name for each in message.nested_type] == names
    _assert_stable(schema)
