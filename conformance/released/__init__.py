"""Test suites that others released, run as they are."""
