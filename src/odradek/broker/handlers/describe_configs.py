"""DescribeConfigs (32), versions 1-4: the configs of topics and of this broker.

Each with its value (null when secret), source, synonyms when asked for, and from v3 on its type
and, when asked for, its documentation. `configuration_keys` narrows it down. A broker resource
without a name has what was altered for all brokers; the broker loggers are Python's, with Log4j's
level names.

Deviations from Kafka: configs that do not apply here are not there. Client metrics and groups have
no configs of their own (Kafka shows the defaults of new-style groups). Documentation in our words.
KIP-133, KIP-226 (synonyms), KIP-412 (loggers), KIP-569 (types and documentation).
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.config_entries import (
    ConfigEntry,
    broker_entries,
    default_broker_entries,
    topic_entries,
)
from odradek.broker.context import RequestContext, Services
from odradek.broker.loggers import logger_levels
from odradek.cluster.config_changes import ResourceType, check_own_broker_name
from odradek.cluster.topics import check_topic_name
from odradek.config.broker import ConfigSource
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_result(services, request, resource) for resource in request.resources]
    )


def _result(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        ErrorCode.NONE, "", resource.resource_type, resource.resource_name
    )
    try:
        configs = _configs(services, request, resource)
    except KafkaError as error:
        result.error_code = error.code
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # Kafka has no words for it.
            result.error_message = error.message
        return result
    wanted = resource.configuration_keys
    result.configs = [each for each in configs if not wanted or each.name in wanted]
    return result


def _configs(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC:
        return _shown(request, _topic_entries(services, name))
    if kind == ResourceType.BROKER:
        if not name:
            return _shown(request, default_broker_entries(services.config))
        check_own_broker_name(services.image(), name)
        return _shown(request, broker_entries(services.config))
    if kind == ResourceType.BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        check_own_broker_name(services.image(), name)
        return _loggers()
    if kind in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource's name must not be empty")
        return []
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind} for resource {name}"
    )


def _topic_entries(services: Services, name: str) -> list[ConfigEntry]:
    check_topic_name(name)
    image = services.image()
    topic = TopicName(name)
    if topic not in image.topics_by_name:
        text = "This server does not host this topic-partition."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return topic_entries(services.config, image.topic_configs.get(topic, {}))


def _shown(
    request: DescribeConfigsRequest, entries: Sequence[ConfigEntry]
) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            entry.key.name,
            entry.value,
            entry.read_only,
            entry.source,
            entry.key.sensitive,
            [DescribeConfigsSynonym(*origin) for origin in entry.origins]
            if request.include_synonyms
            else [],
            entry.key.type,
            entry.key.doc if request.include_documentation else None,
        )
        for entry in entries
    ]


def _loggers() -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name,
            level,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            documentation=None,
        )
        for name, level in logger_levels().items()
    ]
