"""DescribeConfigsResponse: generated from definitions/api/DescribeConfigsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeConfigsSynonym:
    name: str = ""  # versions 1+
    value: str | None = ""  # versions 1+, nullable 0+
    source: int = 0  # versions 1+


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    name: str = ""  # versions 0+
    value: str | None = ""  # versions 0+, nullable 0+
    read_only: bool = False  # versions 0+
    config_source: int = -1  # versions 1+
    is_sensitive: bool = False  # versions 0+
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)  # versions 1+
    config_type: int = 0  # versions 3+
    documentation: str | None = ""  # versions 3+, nullable 0+


@dataclass(slots=True)
class DescribeConfigsResult:
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeConfigsResponse:
    SPEC: ClassVar[str] = "api/DescribeConfigsResponse"
    API_KEY: ClassVar[int] = 32
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # versions 0+
    results: list[DescribeConfigsResult] = field(default_factory=list)  # versions 0+
