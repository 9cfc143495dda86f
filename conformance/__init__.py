"""Conformance tests: released clients and tools run against Odradek and against Apache Kafka."""
