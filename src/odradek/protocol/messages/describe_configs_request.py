"""DescribeConfigsRequest: generated from definitions/api/DescribeConfigsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeConfigsResource:
    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+
    configuration_keys: list[str] | None = field(default_factory=list)  # versions 0+, nullable 0+


@dataclass(slots=True)
class DescribeConfigsRequest:
    SPEC: ClassVar[str] = "api/DescribeConfigsRequest"
    API_KEY: ClassVar[int] = 32
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    resources: list[DescribeConfigsResource] = field(default_factory=list)  # versions 0+
    include_synonyms: bool = False  # versions 1+
    include_documentation: bool = False  # versions 3+
