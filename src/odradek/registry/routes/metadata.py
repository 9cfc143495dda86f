"""``/`` and ``/v1/metadata``: whether the registry responds, and what it is."""

from __future__ import annotations

from odradek.registry.json_value import JsonValue
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.resources import ResourceTable
from odradek.registry.service import Registry


class MetadataRoutes:
    """The handlers of ``/`` and ``/v1/metadata``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resources(self) -> ResourceTable:
        """Return the handlers by path and method."""
        return {
            "/": {"GET": self.root, "POST": self.root},
            "/v1/metadata/id": {"GET": self.cluster},
            "/v1/metadata/version": {"GET": self.version},
            "/v1/metadata/deployment": {"GET": self.deployment},
        }

    async def root(self, _: RegistryRequest) -> JsonValue:
        """Return an empty object. Clients use it to see whether the registry responds."""
        return {}

    async def cluster(self, _: RegistryRequest) -> JsonValue:
        """Return the id of the Kafka cluster and the group of the registry's instances."""
        identity = self._registry.identity
        clusters: JsonValue = {
            "kafka-cluster": identity.cluster_id,
            "schema-registry-cluster": identity.group,
        }
        return {"scope": {"path": [], "clusters": clusters}}

    async def version(self, _: RegistryRequest) -> JsonValue:
        """Return the version of Odradek and the commit of its build."""
        identity = self._registry.identity
        version = {"version": identity.version, "commitId": identity.commit}
        return {name: value for name, value in version.items() if value}

    async def deployment(self, _: RegistryRequest) -> JsonValue:
        """Return the attributes of the deployment, of which there are none."""
        return {"attributes": []}
