"""What stops the pipeline and has to be told to its operator in one sentence."""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline cannot start or go on; the message says why, and what to do."""
