"""DescribeConfigs (32), versions 1-4: the configs of topics, groups, subscriptions and this broker.

Each with its value (null when secret), source, synonyms when asked for, and from v3 on its type
and, when asked for, its documentation. `configuration_keys` narrows it down. A broker resource
without a name has what was altered for all brokers; the broker loggers are Python's, with Log4j's
level names.

Deviations from Kafka: what is named over and over is INVALID_REQUEST. Configs that do not apply
here are not there, so groups have those of consumer groups only. Documentation in our words.
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
from odradek.metadata.config_changes import ResourceType, check_own_broker_name
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

# A request may name a resource more than once, but not so often that a small request has an answer
# of any size.
REPEATED_RESOURCES_MAX = 100


def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> Result[DescribeConfigsResponse]:
    description = _Description(services, request)
    results = each(description.result, request.resources, lambda result: len(result.configs))
    return results.then(lambda results: DescribeConfigsResponse(results=results))


class _Description:
    """The answer to one request while it is made. What is the same for several resources is made
    once, and no more resources are described in full than there are, with a few to spare.
    """

    def __init__(self, services: Services, request: DescribeConfigsRequest) -> None:
        self._services = services
        self._request = request
        self._left = len(services.image().topics_by_name) + REPEATED_RESOURCES_MAX
        self._made: dict[object, list[DescribeConfigsResourceResult]] = {}

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            ErrorCode.NONE, "", resource.resource_type, resource.resource_name
        )
        try:
            configs = self._configs(resource.resource_type, resource.resource_name)
            self._left -= 1
            if self._left < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The same is described too often.")
        except KafkaError as error:
            result.error_code = error.code
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # Kafka has no words for it.
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
            return self._shown(key, lambda: topic_entries(self._services.config, overrides))
        if kind == ResourceType.BROKER:
            if not name:
                config = self._services.config
                return self._shown((kind, ""), lambda: default_broker_entries(config))
            check_own_broker_name(self._services.node_id, name)
            return self._shown(kind, lambda: broker_entries(self._services.config))
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
            return self._shown(key, lambda: group_entries(config, overrides))
        overrides = image.client_metrics.get(name, {})
        key = (kind, *sorted(overrides.items()))
        return self._shown(key, lambda: client_metrics_entries(overrides))

    def _shown(
        self, key: object, entries: Callable[[], Sequence[ConfigEntry]]
    ) -> list[DescribeConfigsResourceResult]:
        shown = self._made.get(key)
        if shown is None:
            shown = self._made[key] = _shown(self._request, entries())
        return shown


def _topic_overrides(services: Services, name: str) -> Mapping[str, str]:
    check_topic_name(name)
    image = services.image()
    topic = TopicName(name)
    if topic not in image.topics_by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return image.topic_configs.get(topic, {})


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
