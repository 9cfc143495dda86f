"""Examples of requests to every endpoint, with their responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.registry.guids import guid_of
from odradek.registry.json_value import JsonValue
from odradek.registry.schemas.parsed import TEXT_BYTES_MAX
from tests.registry.routes.memory_registry import (
    CONTRACT,
    EUROPE,
    GONE,
    INVALID,
    LINE,
    ORDER_1,
    ORDER_2,
    ORDER_BROKEN,
    order_reference,
    schema_body,
)

GUID = guid_of(ORDER_1, (), None, None)
UNKNOWN_GUID = "00000000-0000-0000-0000-000000000000"
TOO_LARGE = '"' + "x" * TEXT_BYTES_MAX + '"'
BAD_RULES: JsonValue = {"domainRules": [{"name": "1", "type": "CEL"}]}
INVALID_REFERENCE: JsonValue = [{"name": "Order", "subject": "nothing", "version": 1}]


@dataclass(frozen=True)
class Example:
    """A request in the state of `memory_registry.fill`, and its response.

    Attributes:
        endpoint: The path in the table of endpoints.
        method: The HTTP method.
        url: The path and the query string of the request.
        body: The JSON of the request.
        expected: The JSON of the response. A mapping contains at least these fields.
        code: The error code, for an error.
        status: The HTTP status.
    """

    endpoint: str
    method: str
    url: str
    expected: Any = field(default_factory=dict)
    body: JsonValue = None
    code: int | None = None
    status: int = 200

    @property
    def name(self) -> str:
        url = self.url if len(self.url) < 90 else self.url[:90] + "..."
        return f"{self.method} {url} {self.code or ''}".strip()

    def matches(self, found: Any) -> bool:
        """Whether a body is the expected one."""
        if isinstance(self.expected, Mapping):
            return bool(self.expected.items() <= found.items())
        return bool(found == self.expected)


def get(endpoint: str, url: str, expected: Any, method: str = "GET") -> Example:
    """Return an example without a body that succeeds."""
    return Example(endpoint, method, url, expected)


def fails(
    endpoint: str, url: str, code: int, body: JsonValue = None, method: str = "GET"
) -> Example:
    """Return an example of an error."""
    status = code if code < 1000 else code // 100
    return Example(endpoint, method, url, body=body, code=code, status=status)


def sends(endpoint: str, url: str, body: JsonValue, expected: Any, method: str = "POST") -> Example:
    """Return an example with a body that succeeds."""
    return Example(endpoint, method, url, expected, body)


BY_ID = "/schemas/ids/{id}"
BY_GUID = "/schemas/guids/{guid}"
SUBJECT = "/subjects/{subject}"
VERSIONS = "/subjects/{subject}/versions"
VERSION = "/subjects/{subject}/versions/{version}"
COMPATIBILITY = "/compatibility/subjects/{subject}/versions"
ONE_COMPATIBILITY = "/compatibility/subjects/{subject}/versions/{version}"
CONFIG = "/config/{subject}"
MODE = "/mode/{subject}"

SCHEMAS = [
    get(BY_ID, "/schemas/ids/1", {"schema": ORDER_1, "guid": GUID, "schemaType": "AVRO"}),
    get(BY_ID, "/schemas/ids/1?subject=orders", {"subject": "orders", "version": 1}),
    get(BY_ID, "/schemas/ids/1?subject=invoices", {"subject": ":.sales:invoices", "version": 1}),
    get(BY_ID, "/contexts/.sales/schemas/ids/1?subject=orders", {"subject": ":.sales:orders"}),
    get(BY_ID, "/schemas/ids/5", {"schema": GONE, "deleted": True}),
    get(BY_ID, "/schemas/ids/1?fetchMaxId=true", {"maxId": 6, "schema": ORDER_1}),
    get(BY_ID, "/schemas/ids/1?fetchMaxId=false&findTags=*&unknown=1", {"schema": ORDER_1}),
    get(BY_ID, "/schemas/ids/1?format=unknown", {"schema": ORDER_1}),
    get(BY_ID, "/schemas/ids/4", {"references": order_reference()}),
    fails(BY_ID, "/schemas/ids/99", 40403),
    fails(BY_ID, "/schemas/ids/99?subject=orders", 40403),
    fails(BY_ID, "/contexts/.sales/schemas/ids/2", 40403),
    fails(BY_ID, "/schemas/ids/one", 404),
    fails(BY_ID, "/schemas/ids/2147483648", 404),
    fails(f"{BY_ID}/schema", "/schemas/ids/99/schema", 40403),
    get(f"{BY_ID}/subjects", "/schemas/ids/1/subjects", ["orders"]),
    get(f"{BY_ID}/subjects", "/schemas/ids/5/subjects", []),
    get(f"{BY_ID}/subjects", "/schemas/ids/5/subjects?deleted=true", ["gone"]),
    get(
        f"{BY_ID}/subjects",
        "/contexts/.sales/schemas/ids/1/subjects",
        [":.sales:invoices", ":.sales:orders"],
    ),
    get(
        f"{BY_ID}/subjects",
        "/schemas/ids/1/subjects?subject=:.sales:&offset=1&limit=1",
        [":.sales:orders"],
    ),
    fails(f"{BY_ID}/subjects", "/schemas/ids/99/subjects", 40403),
    get(f"{BY_ID}/versions", "/schemas/ids/1/versions", [{"subject": "orders", "version": 1}]),
    get(f"{BY_ID}/versions", "/schemas/ids/5/versions?offset=0&limit=-1", []),
    fails(f"{BY_ID}/versions", "/schemas/ids/99/versions", 40403),
    fails(f"{BY_ID}/versions", "/schemas/ids/1/versions?limit=x", 404),
    get(BY_GUID, f"/schemas/guids/{GUID}", {"schema": ORDER_1, "guid": GUID}),
    get(BY_GUID, f"/schemas/guids/{GUID}?format=resolved", {"schema": ORDER_1}),
    fails(BY_GUID, f"/schemas/guids/{UNKNOWN_GUID}", 40403),
    fails(BY_GUID, "/schemas/guids/no-guid", 40403),
    get(
        f"{BY_GUID}/ids",
        f"/schemas/guids/{GUID}/ids",
        [{"context": ".", "id": 1}, {"context": ".sales", "id": 1}],
    ),
    get(f"{BY_GUID}/ids", f"/schemas/guids/{UNKNOWN_GUID}/ids", []),
    get("/schemas/types", "/schemas/types", ["JSON", "PROTOBUF", "AVRO"]),
    get("/schemas", "/schemas?subjectPrefix=nothing", []),
    get("/schemas", "/schemas?ruleType=CEL", []),
    get("/schemas", "/schemas?lifecycle=STRONG", []),
]

SUBJECTS = [
    get(
        "/subjects",
        "/subjects",
        [":.sales:invoices", ":.sales:orders", "contracts", "lines", "orders", "orders/eu"],
    ),
    get("/subjects", "/subjects?subjectPrefix=", ["contracts", "lines", "orders", "orders/eu"]),
    get("/subjects", "/subjects?subjectPrefix=orders", ["orders", "orders/eu"]),
    get(
        "/subjects",
        "/subjects?subjectPrefix=:*:orders",
        [":.sales:orders", "orders", "orders/eu"],
    ),
    get("/subjects", "/subjects?subjectPrefix=g&deleted=true", ["gone"]),
    get("/subjects", "/subjects?deletedOnly=true&deleted=true", ["gone"]),
    get("/subjects", "/subjects?offset=1&limit=2", [":.sales:orders", "contracts"]),
    get("/subjects", "/contexts/sales/subjects", [":.sales:invoices", ":.sales:orders"]),
    get("/subjects", "/contexts/:.:/subjects/", ["contracts", "lines", "orders", "orders/eu"]),
    fails("/subjects", "/contexts/a:b/subjects", 400),
    sends(SUBJECT, "/subjects/orders", schema_body(ORDER_1), {"version": 1, "id": 1}),
    sends(
        SUBJECT,
        "/subjects/orders?normalize=True&deleted=True",
        schema_body(ORDER_2),
        {"subject": "orders", "version": 2},
    ),
    sends(SUBJECT, "/subjects/invoices", schema_body(ORDER_1), {"subject": ":.sales:invoices"}),
    sends(SUBJECT, "/subjects/gone?deleted=true", schema_body(GONE), {"version": 1}),
    fails(SUBJECT, "/subjects/gone", 40401, schema_body(GONE), "POST"),
    fails(SUBJECT, "/subjects/nothing", 40401, schema_body(ORDER_1), "POST"),
    fails(SUBJECT, "/subjects/orders", 40403, schema_body(EUROPE), "POST"),
    fails(SUBJECT, "/subjects/orders", 42201, schema_body(INVALID), "POST"),
    fails(SUBJECT, "/subjects/orders", 400, ["schema"], "POST"),
    get(SUBJECT, "/subjects/orders%2Feu", [1], "DELETE"),
    get(SUBJECT, "/subjects/gone?permanent=true", [1], "DELETE"),
    fails(SUBJECT, "/subjects/nothing", 40401, method="DELETE"),
    fails(SUBJECT, "/subjects/gone", 40404, method="DELETE"),
    fails(SUBJECT, "/subjects/contracts?permanent=true", 40405, method="DELETE"),
    fails(SUBJECT, "/subjects/orders", 42206, method="DELETE"),
    get(
        f"{SUBJECT}/metadata",
        "/subjects/contracts/metadata?key=owner&value=team&deleted=False",
        {"subject": "contracts", "version": 1, "schema": CONTRACT},
    ),
    get(f"{SUBJECT}/metadata", "/subjects/contracts/metadata?format=resolved", {"version": 1}),
    fails(f"{SUBJECT}/metadata", "/subjects/contracts/metadata?key=owner&value=x", 40403),
    fails(f"{SUBJECT}/metadata", "/subjects/orders/metadata?key=owner&value=team", 40403),
    fails(f"{SUBJECT}/metadata", "/subjects/nothing/metadata", 40401),
]

VERSION_LISTS = [
    get(VERSIONS, "/subjects/orders/versions", [1, 2]),
    get(VERSIONS, "/subjects/orders/versions?offset=1", [2]),
    get(VERSIONS, "/subjects/gone/versions?deleted=true", [1]),
    get(VERSIONS, "/subjects/gone/versions?deletedOnly=true", [1]),
    get(VERSIONS, "/subjects/gone/versions?deletedAsNegative=true&deleted=true", [-1]),
    get(VERSIONS, "/contexts/.sales/subjects/orders/versions", [1]),
    fails(VERSIONS, "/subjects/gone/versions", 40401),
    fails(VERSIONS, "/subjects/nothing/versions", 40401),
    sends(VERSIONS, "/subjects/orders/versions", schema_body(ORDER_2), {"id": 2, "version": 2}),
    sends(VERSIONS, "/subjects/new/versions", schema_body(ORDER_2), {"id": 2, "version": 1}),
    sends(VERSIONS, "/subjects/new/versions?normalize=True", schema_body(EUROPE), {"version": 1}),
    sends(VERSIONS, "/subjects/new/versions", schema_body('"string"', unknown=1), {"id": 7}),
    sends(VERSIONS, "/contexts/new/subjects/new/versions", schema_body(ORDER_2), {"id": 1}),
    sends(VERSIONS, "/subjects/orders/versions?force=true", schema_body(ORDER_BROKEN), {"id": 7}),
    fails(VERSIONS, "/subjects/orders/versions", 409, schema_body(ORDER_BROKEN), "POST"),
    fails(VERSIONS, "/subjects/orders/versions", 42201, schema_body(INVALID), "POST"),
    fails(VERSIONS, "/subjects/new/versions", 42201, schema_body(""), "POST"),
    fails(
        VERSIONS, "/subjects/new/versions", 42201, schema_body(ORDER_1, schemaType="XML"), "POST"
    ),
    fails(
        VERSIONS,
        "/subjects/lines/versions",
        42201,
        schema_body(LINE, references=INVALID_REFERENCE),
        "POST",
    ),
    fails(VERSIONS, "/subjects/new/versions", 42205, schema_body(ORDER_1, id=8), "POST"),
    fails(VERSIONS, "/subjects/__GLOBAL/versions", 42208, schema_body(ORDER_1), "POST"),
    fails(VERSIONS, "/subjects/new/versions", 42209, schema_body(TOO_LARGE), "POST"),
    fails(
        VERSIONS, "/subjects/new/versions", 42210, schema_body(ORDER_1, ruleSet=BAD_RULES), "POST"
    ),
    fails(VERSIONS, "/subjects/new/versions", 400, {"schema": ["no text"]}, "POST"),
]

ONE_VERSION = [
    get(
        VERSION,
        "/subjects/orders/versions/1",
        {"subject": "orders", "version": 1, "id": 1, "schema": ORDER_1, "guid": GUID},
    ),
    get(VERSION, "/subjects/orders/versions/latest", {"version": 2, "schema": ORDER_2}),
    get(VERSION, "/subjects/orders/versions/-1?deleted=true", {"version": 2}),
    get(VERSION, "/subjects/orders%2Feu/versions/1", {"subject": "orders/eu", "schema": EUROPE}),
    get(VERSION, "/subjects/invoices/versions/1", {"subject": ":.sales:invoices"}),
    get(VERSION, "/subjects/%3A.sales%3Aorders/versions/1", {"subject": ":.sales:orders"}),
    get(VERSION, "/subjects/gone/versions/1?deleted=true", {"deleted": True}),
    get(VERSION, "/subjects/orders/versions/1?format=resolved", {"schema": ORDER_1}),
    fails(VERSION, "/subjects/gone/versions/1", 40401),
    fails(VERSION, "/subjects/nothing/versions/1", 40401),
    fails(VERSION, "/subjects/orders/versions/9", 40402),
    fails(VERSION, "/subjects/orders/versions/0", 42202),
    fails(VERSION, "/subjects/orders/versions/newest", 42202),
    get(VERSION, "/subjects/orders/versions/latest", 2, "DELETE"),
    get(VERSION, "/subjects/gone/versions/1?permanent=true", 1, "DELETE"),
    fails(VERSION, "/subjects/nothing/versions/1", 40401, method="DELETE"),
    fails(VERSION, "/subjects/orders/versions/9", 40402, method="DELETE"),
    fails(VERSION, "/subjects/orders/versions/x", 42202, method="DELETE"),
    fails(VERSION, "/subjects/gone/versions/1", 40406, method="DELETE"),
    fails(VERSION, "/subjects/orders/versions/2?permanent=true", 40407, method="DELETE"),
    fails(VERSION, "/subjects/orders/versions/1", 42206, method="DELETE"),
    fails(f"{VERSION}/schema", "/subjects/orders/versions/9/schema", 40402),
    get(f"{VERSION}/referencedby", "/subjects/orders/versions/1/referencedby", [4]),
    get(f"{VERSION}/referencedby", "/subjects/orders/versions/2/referencedby", []),
    get(f"{VERSION}/referencedby", "/subjects/orders/versions/1/referencedby?offset=1", []),
    fails(f"{VERSION}/referencedby", "/subjects/nothing/versions/1/referencedby", 40401),
    fails(f"{VERSION}/tags", "/subjects/orders/versions/1/tags", 404, {}, "POST"),
]

COMPATIBILITIES = [
    sends(
        COMPATIBILITY,
        "/compatibility/subjects/orders/versions/",
        schema_body(ORDER_2),
        {"is_compatible": True},
    ),
    sends(
        COMPATIBILITY,
        "/compatibility/subjects/nothing/versions?verbose=true",
        schema_body(ORDER_2),
        {"is_compatible": True, "messages": []},
    ),
    sends(
        COMPATIBILITY,
        "/contexts/.sales/compatibility/subjects/orders/versions",
        schema_body(ORDER_BROKEN),
        {"is_compatible": False},
    ),
    fails(
        COMPATIBILITY,
        "/compatibility/subjects/orders/versions",
        42201,
        schema_body(INVALID),
        "POST",
    ),
    sends(
        ONE_COMPATIBILITY,
        "/compatibility/subjects/orders/versions/1?normalize=true",
        schema_body(ORDER_2),
        {"is_compatible": True},
    ),
    sends(
        ONE_COMPATIBILITY,
        "/compatibility/subjects/orders/versions/latest?verbose=true",
        schema_body(INVALID),
        {"is_compatible": False},
    ),
    sends(
        ONE_COMPATIBILITY,
        "/compatibility/subjects/nothing/versions/latest",
        schema_body(ORDER_2),
        {"is_compatible": True},
    ),
    fails(
        ONE_COMPATIBILITY,
        "/compatibility/subjects/orders/versions/9",
        40402,
        schema_body(ORDER_2),
        "POST",
    ),
    fails(
        ONE_COMPATIBILITY,
        "/compatibility/subjects/orders/versions/x",
        42202,
        schema_body(ORDER_2),
        "POST",
    ),
]

CONFIGS = [
    get("/config", "/config", {"compatibilityLevel": "BACKWARD"}),
    get("/config", "/config?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
    sends("/config", "/config", {"compatibility": "full"}, {"compatibility": "FULL"}, "PUT"),
    fails("/config", "/config", 42203, {"compatibility": "SOME"}, "PUT"),
    fails("/config", "/config", 400, ["FULL"], "PUT"),
    get("/config", "/config", {"compatibilityLevel": "BACKWARD"}, "DELETE"),
    get(CONFIG, "/config/orders?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
    fails(CONFIG, "/config/orders", 40408),
    sends(
        CONFIG,
        "/contexts/.sales/config",
        {"compatibility": "NONE", "unknown": 1},
        {"compatibility": "NONE"},
        "PUT",
    ),
    sends(CONFIG, "/config/orders", {"normalize": True}, {"normalize": True}, "PUT"),
    fails(CONFIG, "/config/orders", 42203, {"compatibility": "SOME"}, "PUT"),
    fails(CONFIG, "/config/orders", 42210, {"defaultRuleSet": BAD_RULES}, "PUT"),
    fails(CONFIG, "/config/__EMPTY", 42208, {"compatibility": "NONE"}, "PUT"),
    fails(CONFIG, "/config/orders", 40401, method="DELETE"),
]

MODES = [
    get("/mode", "/mode", {"mode": "READWRITE"}),
    get("/mode", "/mode?defaultToGlobal=true", {"mode": "READWRITE"}),
    sends("/mode", "/mode", {"mode": "READONLY"}, {"mode": "READONLY"}, "PUT"),
    sends("/mode", "/mode?force=True", {"mode": "IMPORT"}, {"mode": "IMPORT"}, "PUT"),
    fails("/mode", "/mode", 42204, {"mode": "SLEEP"}, "PUT"),
    fails("/mode", "/mode", 42205, {"mode": "IMPORT"}, "PUT"),
    get("/mode", "/mode", {"mode": "READWRITE"}, "DELETE"),
    get(MODE, "/mode/orders?defaultToGlobal=true", {"mode": "READWRITE"}),
    fails(MODE, "/mode/orders", 40409),
    sends(MODE, "/mode/orders", {"mode": "READONLY"}, {"mode": "READONLY"}, "PUT"),
    sends(MODE, "/contexts/.new/mode", {"mode": "IMPORT"}, {"mode": "IMPORT"}, "PUT"),
    fails(MODE, "/mode/orders", 42204, {"mode": "FORWARD"}, "PUT"),
    fails(MODE, "/mode/orders", 42205, {"mode": "IMPORT"}, "PUT"),
    fails(MODE, "/mode/__GLOBAL", 42208, {"mode": "READONLY"}, "PUT"),
    get(MODE, "/mode/orders?recursive=true", {}, "DELETE"),
    fails(MODE, "/mode/orders", 40401, method="DELETE"),
]

OTHERS = [
    get("/contexts", "/contexts", [".", ".sales"]),
    get("/contexts", "/contexts/?contextPrefix=.s&offset=0&limit=5", [".sales"]),
    Example("/contexts/{context}", "DELETE", "/contexts/.new", None, status=204),
    fails("/contexts/{context}", "/contexts/.sales", 42211, method="DELETE"),
    get("/", "/", {}),
    get("/", "/contexts/:.:/", {}),
    sends("/", "/", {}, {}),
    get(
        "/v1/metadata/id",
        "/v1/metadata/id",
        {
            "scope": {
                "path": [],
                "clusters": {
                    "kafka-cluster": "cluster-1",
                    "schema-registry-cluster": "schema-registry",
                },
            }
        },
    ),
    get("/v1/metadata/version", "/v1/metadata/version", {"version": "0.1.0", "commitId": "abc"}),
    get("/v1/metadata/deployment", "/v1/metadata/deployment", {"attributes": []}),
    fails("/associations", "/associations", 404, {}, "POST"),
    fails("/associations:batchGet", "/associations:batchGet", 404, {}, "POST"),
    fails("/associations:batchMutate", "/associations:batchMutate", 404, {}, "POST"),
    # sent by @confluentinc/schemaregistry and confluent-kafka-python for each topic
    fails("/associations/{path:path}", "/associations/resources/-/orders", 404),
    fails("/associations/{path:path}", "/associations/resources/%2A/orders", 404),
    fails("/associations/{path:path}", "/associations/subjects/orders", 404),
    fails("/dek-registry/{path:path}", "/dek-registry/v1/keks?deleted=true", 404),
    fails("/dek-registry/{path:path}", "/dek-registry/v1/keks/k/deks/orders", 404),
]

EXAMPLES = [
    *SCHEMAS,
    *SUBJECTS,
    *VERSION_LISTS,
    *ONE_VERSION,
    *COMPATIBILITIES,
    *CONFIGS,
    *MODES,
    *OTHERS,
]
