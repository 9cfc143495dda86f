"""Sinks of the pipeline: Delta and Parquet tables, which commit each batch exactly once."""
