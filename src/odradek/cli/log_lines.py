"""Format of a broker's log: one line for each message, even if a name contains line breaks."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_ESCAPED = _CONTROL | {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


class OneLine(logging.Formatter):
    """A formatter that escapes control characters.

    A client therefore cannot forge log lines or terminal commands through a name. Tracebacks follow
    the message and keep their lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_ESCAPED)
