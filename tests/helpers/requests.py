"""The requests of `testkit`, under the name that most tests import."""

from testkit.requests import batch, fetch, list_offsets, produce

__all__ = ["batch", "fetch", "list_offsets", "produce"]
