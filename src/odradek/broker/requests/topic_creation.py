"""Creation of topics for requests of other APIs than CreateTopics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.requests.cluster import forwards
from odradek.errors import KafkaError
from odradek.metadata.internal_topics import too_few_brokers

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.metadata.topic_changes import NewTopic


async def create_topics(
    services: Services, context: RequestContext, topics: Sequence[NewTopic]
) -> list[KafkaError | None]:
    """Create topics here or at the controller. Return the error or None for each.

    In a cluster, REQUEST_TIMED_OUT means that a creation continues in the background
    (`odradek.broker.requests.auto_topic_creation_manager`). An internal topic is not created before
    there are brokers for all its replicas.
    """

    async def create(topics: Sequence[NewTopic]) -> list[KafkaError | None]:
        cluster = forwards(services.cluster, context.session)
        if cluster is not None:
            from odradek.broker.requests import forwarding

            return await forwarding.create_topics(cluster, context, topics)
        results = await services.controller.create_topics(topics)
        return [result if isinstance(result, KafkaError) else None for result in results]

    if services.cluster is None:
        return await create(topics)
    errors: list[KafkaError | None] = [too_few_brokers(each, services.image()) for each in topics]
    possible = [at for at, error in enumerate(errors) if error is None]
    if possible:
        creations = services.cluster.creations
        created = await creations.create_topics([topics[at] for at in possible], create)
        for at, error in zip(possible, created, strict=True):
            errors[at] = error
    return errors
