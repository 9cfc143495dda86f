"""Reads the golden bytes that Kafka's own classes wrote: see tests/golden/README.md."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path

from odradek.protocol.codec import Message
from tests.protocol.building import all_classes

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = ("messages-kafka-4.1.0.txt", "messages-kafka-4.3.0.txt")


@cache
def golden_messages() -> dict[type[Message], list[tuple[int, bool, bytes]]]:
    """Return for each class its (version, is the full instance, bytes).

    Kafka's class of a request is called ...RequestData.
    """
    classes = {cls.__name__: cls for cls in all_classes()}
    found: dict[type[Message], list[tuple[int, bool, bytes]]] = {}
    lines = [line for name in FILES for line in (GOLDEN / name).read_text().splitlines()]
    for line in lines:
        name, version, instance, data = (line + " ").split(" ")[:4]
        cls = classes[name if name in classes else name.removesuffix("Data")]
        entry = (int(version), instance == "full", base64.b64decode(data))
        found.setdefault(cls, []).append(entry)
    return found
