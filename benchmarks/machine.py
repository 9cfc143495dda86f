"""On what the figures were taken."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from testkit.peer.artifacts import KAFKA_VERSION

GIB = 1 << 30


def description(*, steady_memory: bool = False, peers: bool = True) -> dict[str, str]:
    """Processor, memory, system and versions; those of Java and Apache Kafka with `peers`."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "processor": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{memory / GIB:.0f} GiB" + (" not lent to a host" if steady_memory else ""),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": f"Python {platform.python_version()}",
        **(_peers() if peers else {}),
        "librdkafka": f"confluent-kafka {version('confluent-kafka')}",
    }


def _peers() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return {
        "java": (java.stderr or java.stdout).splitlines()[0],
        "kafka": f"Apache Kafka {KAFKA_VERSION}",
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [
        line.partition(":")[2].strip()
        for line in text.splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()
