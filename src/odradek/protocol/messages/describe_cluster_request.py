"""DescribeClusterRequest: generated from definitions/api/DescribeClusterRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class DescribeClusterRequest:
    SPEC: ClassVar[str] = "api/DescribeClusterRequest"
    API_KEY: ClassVar[int] = 60
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    include_cluster_authorized_operations: bool = False  # versions 0+
    endpoint_type: int = 1  # versions 1+
    include_fenced_brokers: bool = False  # versions 2+
