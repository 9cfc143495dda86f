"""Changes that a test makes to the state of a running broker, on the broker's event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer


async def reset(server: BrokerServer) -> None:
    """Delete all topics, groups, committed offsets, and altered configs and quotas.

    Raises:
        KafkaError: The controller refused a part of it.
    """
    from odradek.metadata.config_changes import ConfigChange
    from odradek.metadata.quotas import QuotaAlteration
    from odradek.metadata.resources import ResourceType

    controller = server.services.controller
    image = controller.image
    ids = [topic.topic_id for topic in image.topics_by_name.values()]
    results = await controller.delete_topics(ids)
    altered = (
        (ResourceType.BROKER, image.broker_configs),
        (ResourceType.GROUP, image.group_configs),
        (ResourceType.CLIENT_METRICS, image.client_metrics),
    )
    if changes := [
        ConfigChange(kind, name, (), replace=True, forced=True)
        for kind, resources in altered
        for name, configs in resources.items()
        if configs
    ]:
        results += await controller.alter_configs(changes)
    if quotas := [
        QuotaAlteration(entity, [(key, None) for key in values])
        for entity, values in image.client_quotas.items()
    ]:
        results += (await controller.alter_client_quotas(quotas)).values()
    for result in results:
        if result is not None:
            raise result


async def do_periodic_work(server: BrokerServer) -> None:
    """Do all periodic work that is due by the broker's clock."""
    periodic = server.periodic
    await periodic.delete_old_segments()
    await periodic.expire_offsets()
    await periodic.abort_timed_out_transactions()
    await periodic.remove_expired_transactional_ids()
    await periodic.warn_of_late_transactions()
    await periodic.maintain()
    if server.config.get_bool("log.cleaner.enable"):
        await server.log_cleaner.clean()
