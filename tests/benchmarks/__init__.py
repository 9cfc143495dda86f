"""Tests of the benchmarks: what they compute, apart from what they measure."""
