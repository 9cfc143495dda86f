"""The .proto files that every schema may import without a reference. Pure.

Google's well-known types come with `grpcio-tools`. Confluent's files are defined here: clients of
Confluent's registry compile them into their packages and refer to them by these names and field
numbers.
"""

from __future__ import annotations

CONFLUENT_META = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
"""Documentation, parameters, tags and rules of a type or a field, as custom options."""

CONFLUENT_DECIMAL = """\
syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
option java_outer_classname = "DecimalProto";
option java_multiple_files = true;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
"""A decimal number: the big-endian two's complement of the unscaled value."""

CONFLUENT_FILES = {
    "confluent/meta.proto": CONFLUENT_META,
    "confluent/type/decimal.proto": CONFLUENT_DECIMAL,
}
"""Confluent's files by the name that an import uses."""

CUSTOM_OPTION_PREFIX = "confluent."
"""Custom options of this package are kept by the format `ignore_extensions`."""
