"""Error codes shared by the handlers of the transaction APIs."""

from __future__ import annotations

from odradek.errors import ErrorCode


def code_for(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Return `code` as a client of the version knows it.

    Versions of an API before `fenced_from` do not have PRODUCER_FENCED (KIP-588).
    INVALID_PRODUCER_EPOCH replaces it.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
