"""DescribeConfigs (32), versions 1-4: return configs of topics, groups, subscriptions and brokers.

The response has the value (null for a secret) and the source of each config, and on request its
synonyms. From version 3 on it has the type, and on request the documentation. `configuration_keys`
selects configs by name. The broker resource without a name has the dynamic defaults of all brokers.
The broker loggers are Python's, with Log4j's names of levels.

Deviations from Kafka: a request that names the same resources too often gets INVALID_REQUEST.
Configs that do not apply to this broker are left out, so groups have only the configs of consumer
groups. The documentation of configs has its own wording.

KIP-133, KIP-226 (synonyms), KIP-412 (loggers), KIP-569 (types and documentation), KIP-714 (client
metrics), KIP-848 (groups).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek.broker.configs.entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from odradek.broker.configs.loggers import logger_levels
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.config.broker import ConfigSource
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.metadata.config_changes import check_own_broker_name
from odradek.metadata.resources import ResourceType
from odradek.metadata.topics import check_topic_name
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
from odradek.results import Result

# A request may name a resource more than once. The limit keeps a small request from causing a
# response of unlimited size.
REPEATED_RESOURCES_MAX = 100


def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> Result[DescribeConfigsResponse]:
    description = _Description(services, request)
    results = each(description.result, request.resources, lambda result: len(result.configs))
    return results.then(lambda results: DescribeConfigsResponse(results=results))


class _Description:
    """Builder of the response to one request.

    Resources with equal configs share one description. The number of resources that are described
    in full is limited to the number of topics plus `REPEATED_RESOURCES_MAX`.
    """

    def __init__(self, services: Services, request: DescribeConfigsRequest) -> None:
        self._services = services
        self._request = request
        self._remaining = len(services.image().topics_by_name) + REPEATED_RESOURCES_MAX
        self._cache: dict[object, list[DescribeConfigsResourceResult]] = {}

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            ErrorCode.NONE, "", resource.resource_type, resource.resource_name
        )
        try:
            configs = self._configs(resource.resource_type, resource.resource_name)
            self._remaining -= 1
            if self._remaining < 0:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The request names the same resources too often."
                )
        except KafkaError as error:
            result.error_code = error.code
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # no message in Kafka
                result.error_message = error.message
            return result
        requested_names = set(resource.configuration_keys or ())
        if requested_names:
            configs = [each for each in configs if each.name in requested_names]
        result.configs = configs
        return result

    def _configs(self, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
        if kind == ResourceType.TOPIC:
            overrides = _topic_overrides(self._services, name)
            key = (kind, *sorted(overrides.items()))
            return self._cached(key, lambda: topic_entries(self._services.config, overrides))
        if kind == ResourceType.BROKER:
            if not name:
                config = self._services.config
                return self._cached((kind, ""), lambda: default_broker_entries(config))
            check_own_broker_name(self._services.node_id, name)
            return self._cached(kind, lambda: broker_entries(self._services.config))
        if kind == ResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            check_own_broker_name(self._services.node_id, name)
            return _loggers()
        if kind in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
            return self._group_or_metrics(kind, name)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind} for resource {name}"
        )

    def _group_or_metrics(self, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
        if not name:
            group = kind == ResourceType.GROUP
            what = "Group name" if group else "Client metrics subscription name"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")
        image, config = self._services.image(), self._services.config
        if kind == ResourceType.GROUP:
            overrides = image.group_configs.get(name, {})
            key = (kind, *sorted(overrides.items()))
            return self._cached(key, lambda: group_entries(config, overrides))
        overrides = image.client_metrics.get(name, {})
        key = (kind, *sorted(overrides.items()))
        return self._cached(key, lambda: client_metrics_entries(overrides))

    def _cached(
        self, key: object, entries: Callable[[], Sequence[ConfigEntry]]
    ) -> list[DescribeConfigsResourceResult]:
        results = self._cache.get(key)
        if results is None:
            results = self._cache[key] = _results(self._request, entries())
        return results


def _topic_overrides(services: Services, name: str) -> Mapping[str, str]:
    check_topic_name(name)
    image = services.image()
    topic = TopicName(name)
    if topic not in image.topics_by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return image.topic_configs.get(topic, {})


def _results(
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
