"""The numbers of fetch sessions in requests and responses (KIP-227)."""

from __future__ import annotations

INVALID_SESSION_ID = 0
"""No session."""
INITIAL_EPOCH = 0
"""The request asks for a new session, and closes the session whose id it has."""
FINAL_EPOCH = -1
"""The request asks for no session, and closes the session whose id it has."""
EPOCH_MAX = 2**31 - 1
"""The epoch after it is 1."""
