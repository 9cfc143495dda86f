"""Texts and formats of Protobuf schemas, and texts that are refused."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    ResolvedReference,
    SchemaKind,
    UnsupportedFormat,
)
from odradek.registry.schemas.protobuf import parse

PROTO3_TEXT = """\
// Orders of the shop.
syntax = "proto3";
package shop;
import public "google/protobuf/empty.proto";
import "google/protobuf/timestamp.proto";
option java_multiple_files = true;
option java_package = "com.shop";
enum Color { COLOR_NONE = 0; COLOR_RED = 1 [deprecated = true]; }
message Order {
  string id = 1; // of the order
  repeated Line lines = 2;
  oneof payment { string card = 3; Price cash = 4 [deprecated = true]; }
\tmap< string,\tLine > by_name = 5;
  optional int32 note = 6 [json_name = "remark"];
  google.protobuf.Timestamp at = 7;
  .shop.Color color = 8;
  reserved 20, 30 to 40, 100 to max;
  reserved "old", "older";
  message Price { double value = 1; }
  enum State { UNKNOWN = 0; }
  repeated State states = 9 [packed = false];
}
message Line {}
service Orders {
  rpc Get (Order) returns (stream Line);
  rpc Put (stream shop.Order) returns (google.protobuf.Empty) { option deprecated = true; }
}
"""

PROTO3_CANONICAL = """\
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";
import public "google/protobuf/empty.proto";

option java_package = "com.shop";
option java_multiple_files = true;

message Order {
  reserved 20;
  reserved 30 to 40;
  reserved 100 to max;
  reserved "old";
  reserved "older";

  string id = 1;
  repeated Line lines = 2;
  map<string, Line> by_name = 5;
  optional int32 note = 6 [json_name = "remark"];
  google.protobuf.Timestamp at = 7;
  .shop.Color color = 8;
  repeated State states = 9 [packed = false];

  oneof payment {
    string card = 3;
    Price cash = 4 [deprecated = true];
  }

  message Price {
    double value = 1;
  }
  enum State {
    UNKNOWN = 0;
  }
}
message Line {}
enum Color {
  COLOR_NONE = 0;
  COLOR_RED = 1 [deprecated = true];
}

service Orders {
  rpc Get (Order) returns (stream Line);
  rpc Put (stream shop.Order) returns (google.protobuf.Empty) {
    option deprecated = true;
  };
}
"""

PROTO2_TEXT = r"""
syntax = "proto2";
package shop;
message Old {
  required string name = 1 [default = "a\"b"];
  optional bytes data = 2 [default = "\001\377"];
  optional float ratio = 3 [default = inf];
  optional Kind kind = 4 [default = BIG];
  repeated group Item = 5 {
    optional int32 count = 1 [default = -1, deprecated = true];
  }
  extensions 100 to 199, 1000 to max;
  enum Kind {
    option allow_alias = true; SMALL = 0; BIG = 1; HUGE = 1;
    reserved 5 to 7, 9; reserved "TINY";
  }
  extend Old { optional string inside = 100; }
}
extend Old { optional int64 outside = 101; repeated Old.Kind kinds = 102; }
"""

PROTO2_CANONICAL = r"""syntax = "proto2";
package shop;

message Old {
  required string name = 1 [default = "a\"b"];
  optional bytes data = 2 [default = "\001\377"];
  optional float ratio = 3 [default = inf];
  optional Kind kind = 4 [default = BIG];
  repeated group Item = 5 {
    optional int32 count = 1 [
      deprecated = true,
      default = -1
    ];
  }

  extensions 100 to 199;
  extensions 1000 to max;

  extend Old {
    optional string inside = 100;
  }

  enum Kind {
    reserved 5 to 7;
    reserved 9;
    reserved "TINY";
    option allow_alias = true;
    SMALL = 0;
    BIG = 1;
    HUGE = 1;
  }
}

extend Old {
  optional int64 outside = 101;
  repeated Old.Kind kinds = 102;
}
"""

OPTIONS_TEXT = """\
syntax = "proto3";
package io.confluent.shop;
import "confluent/meta.proto";
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { Rule rule = 50001; repeated string tags = 50002; }
message Rule { string text = 1; repeated int32 levels = 2; map<string, bool> flags = 3; }
message M {
  option (.confluent.message_meta).doc = "d";
  string a = 1 [(tags) = "p", (rule) = { text: "x" levels: 1 flags { key: "k" value: true } }];
  string b = 2 [(tags) = "q"];
  string c = 3 [(.confluent.field_meta) = {}];
}
"""

OPTIONS_CANONICAL = """\
message M {
  option (.confluent.message_meta) = {
    doc: "d"
  };

  string a = 1 [
    (io.confluent.shop.rule) = {
      text: "x",
      levels: [
        1
      ],
      flags: [
        {
          key: "k",
          value: true
        }
      ]
    },
    (io.confluent.shop.tags) = "p"
  ];
  string b = 2 [(io.confluent.shop.tags) = "q"];
  string c = 3 [(.confluent.field_meta) = {
  }];
}
"""

WITHOUT_EXTENSIONS = """\
message M {
  option (.confluent.message_meta) = {
    doc: "d"
  };

  string a = 1;
  string b = 2;
  string c = 3 [(.confluent.field_meta) = {
  }];
}
"""


def _as_base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_the_canonical_text_has_the_layout_of_confluent() -> None:
    schema = parse(PROTO3_TEXT, ())
    assert schema.kind is SchemaKind.PROTOBUF
    assert schema.canonical == PROTO3_CANONICAL
    assert parse(schema.canonical, ()).canonical == PROTO3_CANONICAL


def test_the_canonical_text_of_proto2_has_groups_extensions_and_defaults() -> None:
    schema = parse(PROTO2_TEXT, ())
    assert schema.canonical == PROTO2_CANONICAL
    assert parse(schema.canonical, ()).canonical == PROTO2_CANONICAL


def test_custom_options_are_written_with_full_names() -> None:
    schema = parse(OPTIONS_TEXT, ())
    assert OPTIONS_CANONICAL in schema.canonical
    assert "extend google.protobuf.FieldOptions {\n  Rule rule = 50001;\n" in schema.canonical
    assert parse(schema.canonical, ()).canonical == schema.canonical


def test_a_format_omits_extensions_and_custom_options_but_those_of_confluent() -> None:
    text = parse(OPTIONS_TEXT, ()).formatted("ignore_extensions")
    assert WITHOUT_EXTENSIONS in text
    assert "extend " not in text


def test_a_syntax_that_is_not_written_stays_so() -> None:
    assert parse("message M {}", ()).canonical == "\nmessage M {}\n"
    assert parse("", ()).canonical == ""


DISORDERED = """\
syntax = "proto3";
package p;
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
option java_package = "j";
option go_package = "g";
message M {
  N n = 2;
  oneof second { int32 d = 7; int32 c = 5; }
  oneof first { int32 b = 3; }
  google.protobuf.Any any = 1 [json_name = "x", deprecated = true];
  map<string, N> all = 9;
  reserved 20, 15 to 16;
  reserved "b2", "b1";
  message N {}
}
enum E { ZERO = 0; TWO = 2; ONE = 1; }
"""

REORDERED = """\
syntax = "proto3";
package p;
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
option go_package = "g";
option java_package = "j";
enum E { ZERO = 0; ONE = 1; TWO = 2; }
message M {
  message N {}
  reserved "b1", "b2";
  reserved 15 to 16, 20;
  map<string, p.M.N> all = 9;
  .google.protobuf.Any any = 1 [deprecated = true, json_name = "x"];
  M.N n = 2;
  oneof first { int32 b = 3; }
  oneof second { int32 c = 5; int32 d = 7; }
}
"""

NORMALIZED = """\
syntax = "proto3";
package p;

import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";

option go_package = "g";
option java_package = "j";

message M {
  reserved 15 to 16;
  reserved 20;
  reserved "b1";
  reserved "b2";

  .google.protobuf.Any any = 1 [
    deprecated = true,
    json_name = "x"
  ];
  .p.M.N n = 2;
  map<string, .p.M.N> all = 9;

  oneof first {
    int32 b = 3;
  }
  oneof second {
    int32 c = 5;
    int32 d = 7;
  }

  message N {}
}
enum E {
  ZERO = 0;
  ONE = 1;
  TWO = 2;
}
"""


def test_a_normalized_text_does_not_depend_on_the_order_and_the_spelling() -> None:
    assert parse(DISORDERED, ()).normalized() == NORMALIZED
    assert parse(REORDERED, ()).normalized() == NORMALIZED


def test_a_descriptor_in_base64_is_returned_as_text() -> None:
    serialized = base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()
    schema = parse(serialized, ())
    assert schema.canonical.startswith('syntax = "proto3";\npackage google.protobuf;\n')
    assert "message Timestamp {\n  int64 seconds = 1;\n  int32 nanos = 2;\n}\n" in schema.canonical
    assert parse(f" {serialized}\n", ()).canonical == schema.canonical


def test_a_descriptor_in_base64_may_import_known_files_and_references() -> None:
    file = FileDescriptorProto(name="user.proto", package="app", syntax="proto3")
    file.dependency.extend(["model/name.proto", "google/protobuf/timestamp.proto"])
    message = file.message_type.add(name="User")
    for number, name in enumerate([".model.Name", ".google.protobuf.Timestamp"], 1):
        message.field.add(
            name=f"f{number}",
            number=number,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=name,
        )
    model = FileDescriptorProto(name="name.proto", package="model", syntax="proto3")
    model.message_type.add(name="Name")
    reference = ResolvedReference("model/name.proto", _as_base64(model))
    schema = parse(_as_base64(file), (reference,))
    assert "message User {\n  .model.Name f1 = 1;\n" in schema.canonical
    as_text = ResolvedReference("model/name.proto", parse(_as_base64(model), ()).canonical)
    assert parse(schema.canonical, (as_text,)).canonical == schema.canonical


def test_the_messages_that_confluent_writes_for_maps_are_read() -> None:
    text = """\
syntax = "proto3";
package p;

message M {
  repeated .p.M.NamesEntry names = 1;

  message Before {}
  message NamesEntry {
    option map_entry = true;

    string key = 1;
    .p.M.Before value = 2;
  }
}
"""
    schema = parse(text, ())
    assert "  message Before {}\n  map<string, .p.M.Before> names = 1;\n" in schema.canonical
    (message,) = schema.files()[-1].message_type
    assert [each.name for each in message.nested_type] == ["Before", "NamesEntry"]
    assert not message.nested_type[1].reserved_name


def test_a_format_is_the_descriptor_in_base64() -> None:
    schema = parse(PROTO3_TEXT, ())
    file = FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    assert [each.name for each in file.message_type] == ["Order", "Line"]
    assert not file.HasField("source_code_info")
    assert file == schema.files()[-1]


def test_other_formats_are_not_supported() -> None:
    schema = parse("message M {}", ())
    assert schema.formatted("") == schema.formatted("default") == schema.canonical
    with pytest.raises(UnsupportedFormat, match="resolved"):
        schema.formatted("resolved")


BAD_ONEOF = FileDescriptorProto(syntax="proto3")
BAD_ONEOF.message_type.add(name="M").field.add(
    name="a",
    number=1,
    label=FieldDescriptorProto.LABEL_OPTIONAL,
    type=FieldDescriptorProto.TYPE_INT32,
    oneof_index=3,
)
BAD_NAME = FileDescriptorProto(syntax="proto3")
BAD_NAME.message_type.add(name="M {} message N")
MISSING_IMPORT = FileDescriptorProto(syntax="proto3", dependency=["missing.proto"])

REFUSED = {
    "not a text": "This is not a schema.",
    "a syntax error": 'syntax = "proto3"; message M { string a = 1 }',
    "a type that is not defined": 'syntax = "proto3"; message M { Missing a = 1; }',
    "an import that is not defined": 'syntax = "proto3"; import "missing.proto";',
    "a number twice": 'syntax = "proto3"; message M { string a = 1; string b = 1; }',
    "an option that is not defined": 'syntax = "proto3"; option (missing) = 1;',
    "base64 of random bytes": base64.b64encode(b"\xff" * 30).decode(),
    "base64 of nothing known": base64.b64encode(b"\xf8\x07\x01").decode(),
    "a wrong index": _as_base64(BAD_ONEOF),
    "a wrong name": _as_base64(BAD_NAME),
    "a missing import in base64": _as_base64(MISSING_IMPORT),
    "a lone surrogate": 'syntax = "proto3"; // \ud800',
    "a null character": 'syntax = "proto3"; \x00',
    "too large": " " * (TEXT_BYTES_MAX + 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_is_refused_with_a_message(name: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(REFUSED[name], ())
    assert str(caught.value)


def test_an_invalid_reference_is_refused() -> None:
    with pytest.raises(InvalidSchema, match=r"a\.proto:1:"):
        parse('import "a.proto";', (ResolvedReference("a.proto", "message"),))


def test_the_references_count_for_the_size() -> None:
    half = f"//{'x' * (TEXT_BYTES_MAX // 2)}"
    with pytest.raises(InvalidSchema, match="The maximum is"):
        parse(half, (ResolvedReference("a.proto", half),))
