"""ElectLeaders, reassignments, UpdateFeatures, ListConfigResources, ACLs, quotas, SCRAM."""

from __future__ import annotations

from conformance.differential.registry import scenario
from conformance.differential.session import Session
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import alter_client_quotas_request as aq
from odradek.protocol.messages import alter_partition_reassignments_request as ar
from odradek.protocol.messages import describe_client_quotas_request as dq
from odradek.protocol.messages import describe_user_scram_credentials_request as scram
from odradek.protocol.messages import elect_leaders_request as el
from odradek.protocol.messages import list_partition_reassignments_request as lr
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.protocol.messages.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)

TIMEOUT_MS = 10_000
EXACT, DEFAULT, ANY = 0, 1, 2


@scenario(ApiKey.ELECT_LEADERS)
def elected(s: Session) -> None:
    topic = s.create("t", 2)

    def ask(step: str, kind: int, requested: dict[str, list[int]]) -> None:
        each = [el.TopicPartitions(*w) for w in requested.items()]
        s.ask(step, el.ElectLeadersRequest(kind, each, TIMEOUT_MS))

    kinds = (0, 1) if s.version else (0,)
    for kind in kinds:
        ask(f"kind {kind}", kind, {topic: [0, 1]})
        ask(f"kind {kind}, bad", kind, {topic: [0, 7], s.name("nobody"): [0]})
        ask(f"kind {kind}, no partitions", kind, {topic: []})
        ask(f"kind {kind}, none", kind, {})
        ask(f"kind {kind}, twice", kind, {topic: [0, 0]})
        ask(f"kind {kind}, no name", kind, {"": [0]})
        s.ask(f"kind {kind}, all", el.ElectLeadersRequest(kind, None, TIMEOUT_MS))
    if s.version:
        ask("kind 2", 2, {topic: [0]})
        ask("kind -1", -1, {topic: [0]})


@scenario(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def reassignments_listed(s: Session) -> None:
    topic = s.create("t", 2)

    def ask(step: str, requested: dict[str, list[int]]) -> None:
        each = [lr.ListPartitionReassignmentsTopics(*w) for w in requested.items()]
        s.ask(step, lr.ListPartitionReassignmentsRequest(TIMEOUT_MS, each))

    s.ask("all", lr.ListPartitionReassignmentsRequest(TIMEOUT_MS, None))
    ask("none", {})
    ask("a topic", {topic: [0, 1]})
    ask("partition 7", {topic: [7]})
    ask("unknown topic", {s.name("nobody"): [0]})
    ask("no name", {"": [0]})
    ask("no partitions", {topic: []})


@scenario(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def reassigned(s: Session) -> None:
    topic = s.create("t", 2)

    def ask(step: str, name: str, partition: int, replicas: list[int] | None) -> None:
        each = ar.ReassignableTopic(name, [ar.ReassignablePartition(partition, replicas)])
        s.ask(step, ar.AlterPartitionReassignmentsRequest(TIMEOUT_MS, True, [each]))

    ask("where it is", topic, 0, [1])
    ask("nothing to cancel", topic, 0, None)
    ask("no replicas", topic, 0, [])
    ask("unknown broker", topic, 0, [7])
    ask("one of them unknown", topic, 0, [1, 7])
    ask("a broker twice", topic, 0, [1, 1])
    ask("a negative broker", topic, 0, [-1])
    ask("partition 7", topic, 7, [1])
    ask("unknown topic", s.name("nobody"), 0, [1])
    ask("no name", "", 0, [1])
    s.ask("none", ar.AlterPartitionReassignmentsRequest(TIMEOUT_MS, True, []))
    if s.version:
        each = ar.ReassignableTopic(topic, [ar.ReassignablePartition(0, [1, 7])])
        s.ask("factor", ar.AlterPartitionReassignmentsRequest(TIMEOUT_MS, False, [each]))


@scenario(ApiKey.UPDATE_FEATURES)
def features(s: Session) -> None:
    """Send no update that changes the cluster, because other scenarios use it as well."""

    def ask(step: str, *updates: tuple[str, int], kind: int = 1, only: bool = False) -> None:
        each = [FeatureUpdateKey(*update, upgrade_type=kind) for update in updates]
        s.ask(step, UpdateFeaturesRequest(TIMEOUT_MS, each, only))

    ask("none")
    ask("unknown", ("no.such", 1))
    ask("no name", ("", 1))
    ask("the same level", ("transaction.version", 2))
    ask("too high", ("transaction.version", 99))
    ask("negative", ("transaction.version", -1))
    ask("lower, not allowed", ("transaction.version", 1))
    ask("two, one unknown", ("no.such", 1), ("transaction.version", 2))
    ask("twice", ("transaction.version", 2), ("transaction.version", 2))
    if s.version:
        ask("unknown kind", ("transaction.version", 2), kind=0)
        ask("kind 9", ("transaction.version", 2), kind=9)
        ask("validated downgrade", ("transaction.version", 1), kind=2, only=True)
        ask("validated unsafe downgrade", ("transaction.version", 1), kind=3, only=True)
        ask("downgrade upwards", ("transaction.version", 99), kind=2, only=True)


@scenario(ApiKey.LIST_CONFIG_RESOURCES)
def config_resources(s: Session) -> None:
    """Compare only this scenario's topics, because other scenarios do not delete theirs."""
    topic = s.create()
    kinds: tuple[tuple[int, ...], ...] = ((), (2,), (4,), (8,), (16,), (32,), (2, 4), (4, 4), (1,))
    for requested in kinds if s.version else kinds[:1]:
        s.send(ListConfigResourcesRequest(list(requested)))
        response = s.wire().receive()
        s.note(f"{requested}: error", response.error_code)
        found = [
            (each.resource_name, each.resource_type)
            for each in response.config_resources
            if each.resource_type not in {2, 32} or each.resource_name == topic
        ]
        s.note(f"{requested}", sorted(s.plainer.plain([list(pair) for pair in found])))


@scenario(ApiKey.DESCRIBE_ACLS)
def acls_described(s: Session) -> None:
    """Neither broker has an authorizer, so both refuse the request."""
    s.ask("any", DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    s.ask("a topic", DescribeAclsRequest(2, "t", 3, "User:a", "*", 3, 3))
    s.ask("unknown kinds", DescribeAclsRequest(0, None, 0, None, None, 0, 0))


@scenario(ApiKey.CREATE_ACLS)
def acls_created(s: Session) -> None:
    good = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    s.ask("none", CreateAclsRequest([]))
    s.ask("one", CreateAclsRequest([good]))
    s.ask("two", CreateAclsRequest([good, good]))
    s.ask("any operation", CreateAclsRequest([AclCreation(2, "t", 3, "User:a", "*", 1, 3)]))
    s.ask("unknown kinds", CreateAclsRequest([AclCreation(0, "t", 0, "User:a", "*", 0, 0)]))


@scenario(ApiKey.DELETE_ACLS)
def acls_deleted(s: Session) -> None:
    any_of = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    s.ask("none", DeleteAclsRequest([]))
    s.ask("any", DeleteAclsRequest([any_of]))
    s.ask("two", DeleteAclsRequest([any_of, any_of]))
    s.ask("unknown kinds", DeleteAclsRequest([DeleteAclsFilter(0, None, 0, None, None, 0, 0)]))


Entity = dict[str, str | None]


def quota(entity: Entity, *ops: aq.OpData, only: bool = False) -> aq.AlterClientQuotasRequest:
    named = [aq.EntityData(*each) for each in entity.items()]
    return aq.AlterClientQuotasRequest([aq.EntryData(named, list(ops))], only)


def quotas(strict: bool, *components: dq.ComponentData) -> dq.DescribeClientQuotasRequest:
    return dq.DescribeClientQuotasRequest(list(components), strict)


RATE = "producer_byte_rate"


@scenario(ApiKey.ALTER_CLIENT_QUOTAS)
def quotas_altered(s: Session) -> None:
    user, client = s.name("u"), s.name("c")
    mine = dq.ComponentData("user", EXACT, user)

    def ask(step: str, request: aq.AlterClientQuotasRequest) -> None:
        s.ask(step, request)
        s.create(f"settle{len(s.responses)}")
        s.ask(f"{step}: kept", quotas(False, mine), 1, on="other")

    ask("validated", quota({"user": user}, aq.OpData(RATE, 1000.0), only=True))
    ask("set", quota({"user": user}, aq.OpData(RATE, 1000.0)))
    ask("of a client", quota({"user": user, "client-id": client}, aq.OpData(RATE, 5.5)))
    both = (aq.OpData("consumer_byte_rate", 7.0), aq.OpData(RATE, 12.5))
    ask("several", quota({"user": user}, *both))
    ask("removed", quota({"user": user}, aq.OpData(RATE, 0.0, True)))
    ask("removed again", quota({"user": user}, aq.OpData(RATE, 0.0, True)))
    ask("unknown key", quota({"user": user}, aq.OpData("no_such", 1.0)))
    ask("key of an ip", quota({"user": user}, aq.OpData("connection_creation_rate", 1.0)))
    for value in (0.0, -1.0, 0.5, 1e300):
        ask(f"value {value}", quota({"user": user}, aq.OpData(RATE, value)))
    nan = aq.OpData(RATE, float("nan"))
    ask("validated, not a number", quota({"user": user}, nan, only=True))
    share = aq.OpData("request_percentage", 12.5)
    ask("validated, request rate", quota({"user": user}, share, only=True))
    ask("key twice", quota({"user": user}, aq.OpData(RATE, 1.0), aq.OpData(RATE, 2.0)))
    ask("no operation", quota({"user": user}))


@scenario(ApiKey.ALTER_CLIENT_QUOTAS)
def quotas_of_odd_entities(s: Session) -> None:
    user = s.name("u")
    rate = aq.OpData(RATE, 9.0)
    s.ask("none", aq.AlterClientQuotasRequest([]))
    s.ask("no entity", quota({}, rate))
    s.ask("unknown type", quota({"planet": "x"}, rate))
    s.ask("no name", quota({"user": ""}, rate))
    s.ask("user and ip", quota({"user": user, "ip": "127.0.0.1"}, rate))
    s.ask("an ip's rate", quota({"ip": "127.0.0.1"}, rate))
    s.ask("not an ip", quota({"ip": "here, there"}, aq.OpData("connection_creation_rate", 9.0)))
    twice = [aq.EntityData("user", user), aq.EntityData("user", user)]
    s.ask("type twice", aq.AlterClientQuotasRequest([aq.EntryData(twice, [rate])]))
    same = aq.EntryData([aq.EntityData("user", user)], [rate])
    s.ask("entity twice", aq.AlterClientQuotasRequest([same, same], True))


@scenario(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def quotas_described(s: Session) -> None:
    user, client = s.name("u"), s.name("c")
    s.quiet(quota({"user": user}, aq.OpData(RATE, 3.0)), 1)
    s.quiet(quota({"user": user, "client-id": client}, aq.OpData(RATE, 4.0)), 1)
    s.create("settle")
    exact = dq.ComponentData("user", EXACT, user)
    both = (exact, dq.ComponentData("client-id", EXACT, client))
    for strict in (False, True):
        s.ask(f"user, strict {strict}", quotas(strict, exact))
        s.ask(f"both, strict {strict}", quotas(strict, *both))
        anyone = dq.ComponentData("client-id", ANY, None)
        s.ask(f"any client of it, strict {strict}", quotas(strict, exact, anyone))
        default = dq.ComponentData("client-id", DEFAULT, None)
        s.ask(f"its default, strict {strict}", quotas(strict, exact, default))
    s.ask("unknown", quotas(True, dq.ComponentData("user", EXACT, s.name("nobody"))))
    s.ask("unknown type", quotas(True, dq.ComponentData("planet", EXACT, "x")))
    s.ask("no type", quotas(True, dq.ComponentData("", EXACT, "x")))
    s.ask("match 3", quotas(True, dq.ComponentData("user", 3, "x")))
    s.ask("exact null", quotas(True, dq.ComponentData("user", EXACT, None)))
    s.ask("any with a name", quotas(True, dq.ComponentData("user", ANY, "x")))
    s.ask("type twice", quotas(True, exact, exact))
    s.ask("user and ip", quotas(True, exact, dq.ComponentData("ip", ANY, None)))


@scenario(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def scram_described(s: Session) -> None:
    s.ask("all", scram.DescribeUserScramCredentialsRequest(None))
    s.ask("none", scram.DescribeUserScramCredentialsRequest([]))
    users = [scram.UserName(s.name("nobody")), scram.UserName("")]
    s.ask("unknown", scram.DescribeUserScramCredentialsRequest(users[:1]))
    s.ask("no name", scram.DescribeUserScramCredentialsRequest(users[1:]))
    s.ask("twice", scram.DescribeUserScramCredentialsRequest(users[:1] * 2))
