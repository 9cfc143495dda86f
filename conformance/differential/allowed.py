"""Differences that stay, with the reason. The key is a pattern of ``scenario@version/step/field``
paths (shell wildcards); a pattern that matches nothing in a whole run is reported.
"""

from __future__ import annotations

ALLOWED: dict[str, str] = {}
