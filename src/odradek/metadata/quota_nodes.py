"""The nodes of client quotas in the metadata store.

As in Kafka on ZooKeeper they are ``/config/users/U``, ``/config/clients/C`` and
``/config/users/U/clients/C``, with ``<default>`` for a default.

In ZooKeeper the node of a user also has other configs, above all Kafka's SCRAM credentials. They
are not part of the metadata here, and are kept when a quota changes (`with_foreign_configs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.metadata import znodes
from odradek.metadata.quotas import CLIENT_ID, USER, Entity, Quotas
from odradek.metadata.store.interface import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeReader,
    NoNodeError,
    Operation,
    Set,
)

USERS = "/config/users"
CLIENTS = "/config/clients"


QUOTAS = frozenset(
    {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
)
"""The configs of users and client ids that are quotas."""


def quota_operations(before: Quotas, after: Quotas) -> list[Operation]:
    """Return the writes of the difference. Parents are created first and deleted last."""
    old, new = _nodes(before), _nodes(after)
    created = sorted(path for path in new if path not in old)
    deleted = sorted((path for path in old if path not in new), reverse=True)
    changed = sorted(path for path, data in new.items() if path in old and old[path] != data)
    return [
        *(Delete(path) for path in deleted),
        *(Create(path, new[path]) for path in created),
        *(Set(path, new[path]) for path in changed),
    ]


async def load_quotas(store: NodeReader) -> Quotas:
    """Return the quotas that `quota_operations` wrote."""
    paths: dict[str, Entity] = {}
    for name in await store.children(CLIENTS):
        paths[f"{CLIENTS}/{name}"] = ((CLIENT_ID, _name(name)),)
    for user in await store.children(USERS):
        path = f"{USERS}/{user}"
        paths[path] = ((USER, _name(user)),)
        try:
            clients = await store.children(f"{path}/clients")
        except NoNodeError:
            continue
        for client in clients:
            paths[f"{path}/clients/{client}"] = ((CLIENT_ID, _name(client)), (USER, _name(user)))
    quotas: dict[Entity, Mapping[str, float]] = {}
    nodes = await store.get_many(list(paths))
    for (path, entity), node in zip(paths.items(), nodes, strict=True):
        values = None if node is None else znodes.valid(path, _decode_quotas, node.data)
        if values:
            quotas[entity] = values
    return quotas


def _decode_quotas(data: bytes) -> dict[str, float]:
    configs = znodes.decode_configs(data)
    return {key: float(value) for key, value in configs.items() if key in QUOTAS}


async def with_foreign_configs(
    store: MetadataStore, operations: Sequence[Operation]
) -> Sequence[Operation]:
    """Return operations that keep the configs of users and client ids that are not quotas.

    The nodes that are changed are read first. If another program changes such a node before the
    operations, they fail with BadVersionError.
    """
    paths = [each.path for each in operations if _has_configs(each)]
    if not paths:
        return operations
    nodes = dict(zip(paths, await store.get_many(paths), strict=True))
    kept: list[Operation] = []
    for each in operations:
        node = nodes.get(each.path)
        kept.append(each if node is None else _with_foreign(each, node))
    return kept


def _has_configs(operation: Operation) -> bool:
    """Return whether an operation changes the configs of a user or client id."""
    if isinstance(operation, Check) or not operation.path.startswith((f"{USERS}/", f"{CLIENTS}/")):
        return False
    return isinstance(operation, Delete) or bool(operation.data)


def _with_foreign(operation: Operation, node: Node) -> Operation:
    foreign = {}
    if node.data:
        configs = znodes.valid(operation.path, znodes.decode_configs, node.data)
        foreign = {key: value for key, value in configs.items() if key not in QUOTAS}
    if isinstance(operation, Delete):
        if not foreign:
            return operation
        return Set(operation.path, znodes.encode_configs(foreign), node.version)
    assert isinstance(operation, Create | Set)
    configs = {**foreign, **znodes.decode_configs(operation.data)}
    return Set(operation.path, znodes.encode_configs(configs), node.version)


def _nodes(quotas: Quotas) -> dict[str, bytes]:
    """Return every node that these quotas need, by path."""
    nodes: dict[str, bytes] = {}
    for entity, values in quotas.items():
        names = dict(entity)
        data = znodes.encode_configs({key: _text(value) for key, value in values.items()})
        if USER not in names:
            nodes[f"{CLIENTS}/{_node(names[CLIENT_ID])}"] = data
            continue
        path = f"{USERS}/{_node(names[USER])}"
        if CLIENT_ID not in names:
            nodes[path] = data
            continue
        nodes.setdefault(path, znodes.encode_configs({}))
        nodes[f"{path}/clients"] = b""
        nodes[f"{path}/clients/{_node(names[CLIENT_ID])}"] = data
    return nodes


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _node(name: str | None) -> str:
    return znodes.DEFAULT_ENTITY if name is None else znodes.sanitized(name)


def _name(node: str) -> str | None:
    return None if node == znodes.DEFAULT_ENTITY else znodes.unsanitized(node)
