"""AlterReplicaLogDirsRequest: generated from definitions/api/AlterReplicaLogDirsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterReplicaLogDir:
    path: str = ""  # versions 0+
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    SPEC: ClassVar[str] = "api/AlterReplicaLogDirsRequest"
    API_KEY: ClassVar[int] = 34
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)  # versions 0+
