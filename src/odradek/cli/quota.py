"""`odradek quota`: quotas of single users and clients, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_NAME, BootstrapServer, JsonOutput
from odradek.cli.failures import Subject
from odradek.cli.output import CommandError, parse_assignments, print_json, print_rows

if TYPE_CHECKING:
    from odradek.protocol.messages.describe_client_quotas_response import EntityData

app = typer.Typer(no_args_is_help=True)

ENTITY_TYPES = ("user", "client-id", "ip")
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
# Match types of DescribeClientQuotas: one name, the default, any name of the type.
MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2


def complete_key(incomplete: str) -> list[str]:
    """Complete the keys of Kafka's quotas."""
    return [each for each in KEYS if each.startswith(incomplete)]


def complete_entity(incomplete: str) -> list[str]:
    """Complete the types of entities."""
    return [f"{each}=" for each in ENTITY_TYPES if each.startswith(incomplete)]


Entities = Annotated[
    list[str],
    typer.Argument(
        metavar="ENTITY...",
        help="user=NAME, client-id=NAME or ip=ADDRESS; the name default means all others.",
        autocompletion=complete_entity,
    ),
]


@app.command("list")
def list_(
    entities: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENTITY]...",
            help="Filter: user=NAME, user=default, or user for all users.",
            autocompletion=complete_entity,
        ),
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """List the quotas that are set."""
    from odradek.cli.wire import WireClient, check
    from odradek.protocol.messages.describe_client_quotas_request import (
        ComponentData,
        DescribeClientQuotasRequest,
    )
    from odradek.protocol.messages.describe_client_quotas_response import (
        DescribeClientQuotasResponse,
    )

    components = [ComponentData(*_component(each)) for each in entities or []]
    with WireClient(bootstrap_server) as client:
        response = client.call(
            DescribeClientQuotasRequest(components), DescribeClientQuotasResponse, 1
        )
    check(response.error_code, Subject("broker", bootstrap_server), response.error_message)
    rows = [
        {
            "entity": _entity_text(entry.entity),
            "quota": value.key,
            "value": value.value,
        }
        for entry in response.entries or []
        for value in entry.values
    ]
    rows.sort(key=lambda row: (row["entity"], row["quota"]))
    print_rows(rows, ["entity", "quota", "value"], as_json)


@app.command("set")
def set_(
    entities: Entities,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota", "-q", help="A quota, key=value; repeatable.", autocompletion=complete_key
        ),
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Set quotas: producer_byte_rate and consumer_byte_rate in bytes/s, and Kafka's other keys."""
    assignments = parse_assignments(quota or [], "--quota")
    if not assignments:
        raise CommandError("Nothing to set: use --quota key=value.")
    quotas = {key: _number(key, text) for key, text in assignments.items()}
    _alter(bootstrap_server, entities, quotas)
    _print_altered(entities, quotas, [], as_json)


@app.command("delete")
def delete(
    entities: Entities,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota",
            "-q",
            help="Key of a quota; repeatable (default: all quotas of the entity).",
            autocompletion=complete_key,
        ),
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Delete quotas of an entity."""
    keys = quota or _keys_of(bootstrap_server, entities)
    if not keys:
        raise CommandError(
            f"Entity '{' '.join(entities)}' has no quotas to delete."
            " `odradek quota list` shows all quotas."
        )
    _alter(bootstrap_server, entities, dict.fromkeys(keys))
    _print_altered(entities, {}, keys, as_json)


def _print_altered(
    entities: list[str], quotas: Mapping[str, float], deleted: list[str], as_json: bool
) -> None:
    if as_json:
        print_json({"entity": _sorted_text(entities), "set": dict(quotas), "deleted": deleted})
    else:
        print(f"altered the quotas of {' '.join(entities)}")


def _alter(bootstrap_server: str, entities: list[str], quotas: Mapping[str, float | None]) -> None:
    from odradek.cli.wire import WireClient, check
    from odradek.protocol.messages.alter_client_quotas_request import (
        AlterClientQuotasRequest,
        EntityData,
        EntryData,
        OpData,
    )
    from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse

    ops = [OpData(key, value or 0.0, value is None) for key, value in quotas.items()]
    entry = EntryData([EntityData(*each) for each in _entity(entities)], ops)
    with WireClient(bootstrap_server) as client:
        result = client.call(
            AlterClientQuotasRequest([entry]), AlterClientQuotasResponse, 1
        ).entries[0]
    check(result.error_code, Subject("entity", " ".join(entities)), result.error_message)


def _keys_of(bootstrap_server: str, entities: list[str]) -> list[str]:
    """Return the keys of the quotas that exactly this entity has."""
    from odradek.cli.wire import WireClient, check
    from odradek.protocol.messages.describe_client_quotas_request import (
        ComponentData,
        DescribeClientQuotasRequest,
    )
    from odradek.protocol.messages.describe_client_quotas_response import (
        DescribeClientQuotasResponse,
    )

    components = [ComponentData(*_match(*each)) for each in _entity(entities)]
    request = DescribeClientQuotasRequest(components, strict=True)
    with WireClient(bootstrap_server) as client:
        response = client.call(request, DescribeClientQuotasResponse, 1)
    check(response.error_code, Subject("entity", " ".join(entities)), response.error_message)
    return [value.key for entry in response.entries or [] for value in entry.values]


def _required(text: str) -> str:
    if "=" not in text:
        raise CommandError(f"An entity has the form type=name, such as user=alice, not {text!r}.")
    return text


def _entity(texts: list[str]) -> list[tuple[str, str | None]]:
    """Return type and name of each part of one entity, which has one part of a type at most."""
    parts = [_part(each) for each in texts]
    if len({kind for kind, _ in parts}) < len(parts):
        raise CommandError(
            f"{' '.join(texts)} is more than one entity: run the command once for each of them."
        )
    return parts


def _part(text: str) -> tuple[str, str | None]:
    """Return type and name of a text such as ``user=alice``; the default has the name None."""
    kind, _, name = _required(text).partition("=")
    if kind not in ENTITY_TYPES or not name:
        raise CommandError(
            f"An entity is {'=, '.join(ENTITY_TYPES)}= followed by a name, not {text!r}."
        )
    return kind, None if name == DEFAULT_NAME else name


def _component(text: str) -> tuple[str, int, str | None]:
    if text in ENTITY_TYPES:
        return text, MATCH_ANY, None
    return _match(*_part(text))


def _match(kind: str, name: str | None) -> tuple[str, int, str | None]:
    return kind, MATCH_DEFAULT if name is None else MATCH_EXACT, name


def _entity_text(entity: list[EntityData]) -> str:
    return _sorted_text(
        [f"{each.entity_type}={each.entity_name or DEFAULT_NAME}" for each in entity]
    )


def _sorted_text(parts: list[str]) -> str:
    """Return one text for an entity, independent of the order of its parts."""
    return " ".join(sorted(parts, reverse=True))


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"--quota {key} takes a number, not {text!r}.") from None
