"""Tests of the benchmarks' computations, without measurements."""
