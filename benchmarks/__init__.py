"""Benchmarks: one script for each question. Results are tables and plots under docs/."""
