"""A schema registry in memory for tests of its clients: `httpx.MockTransport(fake.handle)`.

It has the endpoints that `odradek schema` uses. Two schemas are the same if their texts, kinds and
references are. A check of compatibility returns the messages of `incompatible`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from uuid import NAMESPACE_URL, uuid5

import httpx

from odradek.registry.client import RegistryClient

ADDRESS = "http://registry.test:8081"
Body = dict[str, Any]


class Refused(Exception):
    """A request that the registry answers with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class FakeVersion:
    """A version of a subject."""

    version: int
    id: int
    body: Body
    deleted: bool = False


@dataclass
class FakeRegistry:
    """The state. `requests` has the method and path of each request.

    `fault` may raise an exception of httpx, or return a response instead of the registry's.
    """

    config: Body = field(default_factory=lambda: {"compatibilityLevel": "BACKWARD"})
    mode: str = "READWRITE"
    subjects: dict[str, list[FakeVersion]] = field(default_factory=dict)
    configs: dict[str, Body] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    incompatible: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    auth: str | None = None
    fault: Callable[[httpx.Request], httpx.Response | None] = lambda _request: None

    def client(self, notify: Callable[[str], None] = lambda _line: None) -> RegistryClient:
        """Return a client that does not wait."""
        http = httpx.Client(transport=httpx.MockTransport(self.handle))
        return RegistryClient([ADDRESS], http, notify, sleep=lambda _wait_s: None)

    def add(self, subject: str, text: str, kind: str = "AVRO", **more: Any) -> FakeVersion:
        """Register a schema without a request."""
        return self._register(subject, {"schema": text, "schemaType": kind, **more}, None, None)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Return the response to a request."""
        path = request.url.raw_path.decode().partition("?")[0]
        self.requests.append(f"{request.method} {path}")
        if self.auth is not None and request.headers.get("authorization") != self.auth:
            return _error(401, "Unauthorized")
        response = self.fault(request)
        if response is not None:
            return response
        body = json.loads(request.content) if request.content else {}
        try:
            found = self._route(request.method, path, dict(request.url.params), body)
        except Refused as refused:
            return _error(refused.code, str(refused))
        return httpx.Response(200, json=found)

    def _route(self, method: str, path: str, query: dict[str, str], body: Body) -> object:
        for pattern, name in _ROUTES:
            match = re.fullmatch(pattern, f"{method} {path}")
            if match:
                parts = [unquote(part) for part in match.groups()]
                handler: Callable[..., object] = getattr(self, name)
                return handler(*parts, query=query, body=body)
        raise Refused(404, "HTTP 404 Not Found")

    def list_subjects(self, *, query: dict[str, str], body: Body) -> object:
        deleted = query.get("deleted") == "true"
        return [name for name, each in self.subjects.items() if _visible(each, deleted)]

    def list_versions(self, subject: str, *, query: dict[str, str], body: Body) -> object:
        found = self._visible(subject, query.get("deleted") == "true")
        return [each.version for each in found]

    def get_version(
        self, subject: str, version: str, *, query: dict[str, str], body: Body
    ) -> object:
        return self._json(subject, self._version(subject, version, query.get("deleted") == "true"))

    def get_id(self, id_: str, *, query: dict[str, str], body: Body) -> object:
        for subject, versions in self.subjects.items():
            for each in versions:
                if each.id == int(id_):
                    return {"subject": subject, **each.body}
        raise Refused(40403, f"Schema {id_} not found")

    def get_guid(self, guid: str, *, query: dict[str, str], body: Body) -> object:
        for versions in self.subjects.values():
            for each in versions:
                if guid_of(each.body) == guid:
                    return each.body
        raise Refused(40403, f"Schema {guid} not found")

    def look_up(self, subject: str, *, query: dict[str, str], body: Body) -> object:
        for each in self._visible(subject, query.get("deleted") == "true"):
            if _identity(each.body) == _identity(body):
                return self._json(subject, each)
        raise Refused(40403, "Schema not found")

    def register(self, subject: str, *, query: dict[str, str], body: Body) -> object:
        id_, version = body.pop("id", None), body.pop("version", None)
        mode = self.modes.get(subject, self.mode)
        if (id_ is not None) != (mode == "IMPORT"):
            raise Refused(42205, f"Subject {subject} is not in the needed mode, but in {mode}")
        return {"id": self._register(subject, body, id_, version).id}

    def delete(self, subject: str, version: str, *, query: dict[str, str], body: Body) -> object:
        self._version(subject, version, False).deleted = True
        return int(version)

    def check(self, subject: str, *more: str, query: dict[str, str], body: Body) -> object:
        if more:
            self._version(subject, more[0], False)
        return {"is_compatible": not self.incompatible, "messages": self.incompatible}

    def get_config(self, *subject: str, query: dict[str, str], body: Body) -> object:
        if not subject:
            return self.config
        if subject[0] in self.configs:
            return self.configs[subject[0]]
        if query.get("defaultToGlobal") == "true":
            return self.config
        raise Refused(40408, f"Subject '{subject[0]}' does not have subject-level compatibility")

    def put_config(self, subject: str, *, query: dict[str, str], body: Body) -> object:
        level = body.pop("compatibility", None)
        self.configs[subject] = body | ({"compatibilityLevel": level} if level else {})
        return body

    def get_mode(self, *subject: str, query: dict[str, str], body: Body) -> object:
        if not subject:
            return {"mode": self.mode}
        if subject[0] not in self.modes:
            raise Refused(40409, f"Subject '{subject[0]}' does not have subject-level mode")
        return {"mode": self.modes[subject[0]]}

    def put_mode(self, subject: str, *, query: dict[str, str], body: Body) -> object:
        if body["mode"] == "IMPORT" and self.subjects.get(subject) and query["force"] != "true":
            raise Refused(42205, "Cannot import since found existing subjects")
        self.modes[subject] = body["mode"]
        return body

    def delete_mode(self, subject: str, *, query: dict[str, str], body: Body) -> object:
        if subject not in self.modes:
            raise Refused(40409, f"Subject '{subject}' does not have subject-level mode")
        return {"mode": self.modes.pop(subject)}

    def _visible(self, subject: str, deleted: bool) -> list[FakeVersion]:
        found = _visible(self.subjects.get(subject, []), deleted)
        if not found:
            raise Refused(40401, f"Subject '{subject}' not found.")
        return found

    def _version(self, subject: str, version: str, deleted: bool) -> FakeVersion:
        found = self._visible(subject, deleted)
        if version == "latest":
            return found[-1]
        for each in found:
            if each.version == int(version):
                return each
        raise Refused(40402, f"Version {version} not found.")

    def _register(
        self, subject: str, body: Body, id_: int | None, version: int | None
    ) -> FakeVersion:
        versions = self.subjects.setdefault(subject, [])
        for each in versions:
            if _identity(each.body) == _identity(body) and not each.deleted and version is None:
                return each
        ids = {each.id: each.body for all_ in self.subjects.values() for each in all_}
        if id_ is None:
            same = [key for key, each in ids.items() if _identity(each) == _identity(body)]
            id_ = same[0] if same else max(ids, default=0) + 1
        elif id_ in ids and _identity(ids[id_]) != _identity(body):
            raise Refused(42205, f"Overwrite new schema with id {id_} is not permitted.")
        number = version or max((each.version for each in versions), default=0) + 1
        added = FakeVersion(number, id_, body)
        versions.append(added)
        versions.sort(key=lambda each: each.version)
        return added

    def _json(self, subject: str, version: FakeVersion) -> Body:
        return {
            "subject": subject,
            "version": version.version,
            "id": version.id,
            "guid": guid_of(version.body),
            **version.body,
        }


_ROUTES = [
    (r"GET /subjects", "list_subjects"),
    (r"GET /subjects/([^/]+)/versions", "list_versions"),
    (r"GET /subjects/([^/]+)/versions/([^/]+)", "get_version"),
    (r"POST /subjects/([^/]+)", "look_up"),
    (r"POST /subjects/([^/]+)/versions", "register"),
    (r"DELETE /subjects/([^/]+)/versions/([^/]+)", "delete"),
    (r"GET /schemas/ids/([^/]+)", "get_id"),
    (r"GET /schemas/guids/([^/]+)", "get_guid"),
    (r"POST /compatibility/subjects/([^/]+)/versions", "check"),
    (r"POST /compatibility/subjects/([^/]+)/versions/([^/]+)", "check"),
    (r"GET /config", "get_config"),
    (r"GET /config/([^/]+)", "get_config"),
    (r"PUT /config/([^/]+)", "put_config"),
    (r"GET /mode", "get_mode"),
    (r"GET /mode/([^/]+)", "get_mode"),
    (r"PUT /mode/([^/]+)", "put_mode"),
    (r"DELETE /mode/([^/]+)", "delete_mode"),
]


def guid_of(body: Body) -> str:
    """Return the guid of a schema."""
    return str(uuid5(NAMESPACE_URL, repr(_identity(body))))


def _identity(body: Body) -> tuple[object, ...]:
    references = body.get("references") or []
    return body["schema"], body.get("schemaType", "AVRO"), json.dumps(references)


def _visible(versions: list[FakeVersion], deleted: bool) -> list[FakeVersion]:
    return [each for each in versions if deleted or not each.deleted]


def _error(code: int, message: str) -> httpx.Response:
    status = code if code < 1000 else code // 100
    return httpx.Response(status, json={"error_code": code, "message": message})
