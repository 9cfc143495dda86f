"""Spark jobs, the entry points of the pipeline."""
