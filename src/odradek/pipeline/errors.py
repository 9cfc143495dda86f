"""The errors that stop the pipeline, with a message for its operator."""

from __future__ import annotations


class PipelineError(Exception):
    """The pipeline cannot start or continue. The message is one line with cause and remedy."""


class NoBroker(PipelineError):
    """No broker of the cluster responded in time."""


class ExpectationFailed(PipelineError):
    """A batch has rows that do not meet an expectation which stops the job. Not committed."""


class TooManyRejects(PipelineError):
    """A batch has more rejected records than the job allows. It was not committed."""
