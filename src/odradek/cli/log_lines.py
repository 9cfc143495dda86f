"""The lines of a broker's log: one for each message, whatever a client put into a name."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_ESCAPED = _CONTROL | {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


class OneLine(logging.Formatter):
    """Writes control characters as escapes: nobody forges a line of the log, or a terminal's
    commands. Tracebacks, which come behind the message, keep their lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_ESCAPED)
