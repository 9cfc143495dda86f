"""Error codes that the handlers of the transaction APIs share."""

from __future__ import annotations

from odradek.errors import ErrorCode


def code_for(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Clients before version `fenced_from` of an API do not know PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
