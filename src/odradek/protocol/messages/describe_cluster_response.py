"""DescribeClusterResponse: generated from definitions/api/DescribeClusterResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeClusterBroker:
    broker_id: int = 0  # versions 0+, brokerId
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+
    rack: str | None = None  # versions 0+, nullable 0+
    is_fenced: bool = False  # versions 2+
    drained: bool = False  # versions 0+, tag 10000, not in Kafka


@dataclass(slots=True)
class DescribeClusterResponse:
    SPEC: ClassVar[str] = "api/DescribeClusterResponse"
    API_KEY: ClassVar[int] = 60
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    endpoint_type: int = 1  # versions 1+
    cluster_id: str = ""  # versions 0+
    controller_id: int = -1  # versions 0+, brokerId
    brokers: list[DescribeClusterBroker] = field(default_factory=list)  # versions 0+
    cluster_authorized_operations: int = -2147483648  # versions 0+
