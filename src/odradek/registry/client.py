"""HTTP client of a schema registry, for commands: any registry with Confluent's REST interface.

The client is synchronous. It repeats requests that a registry did not respond to, because every
request of this interface may be repeated. A deletion that is repeated may find that it has been
executed before, which is a success.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from odradek.registry.errors import RegistryErrorCode
from odradek.registry.schemas.parsed import Reference, ResolvedReference, SchemaKind
from odradek.registry.subjects import QualifiedSubject

if TYPE_CHECKING:
    from uuid import UUID

    import httpx

RESPONSE_TIMEOUT_S = 15.0
"""Time limit of one request in seconds."""

RETRY_WAITS_S = (0.1, 0.5, 1.0, 2.0)
"""Waits in seconds before a request is repeated. After the last repetition the request fails."""

REFERENCES_MAX = 1000
"""Largest number of schemas that one schema may reference, directly and through other schemas."""

SCHEMAS_PER_PAGE = 100
"""Largest number of versions in one response to a request for the versions of many subjects."""

ERROR_TEXT_MAX = 300
"""Number of characters that an error keeps of a response that is not JSON."""

_RETRIED_STATUSES = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
_RETRIED_CODES = frozenset(
    {
        RegistryErrorCode.OPERATION_TIMEOUT,
        RegistryErrorCode.FORWARDING_FAILED,
        RegistryErrorCode.UNKNOWN_LEADER,
    }
)
_NO_SUBJECT = frozenset(
    {RegistryErrorCode.SUBJECT_NOT_FOUND, RegistryErrorCode.SUBJECT_SOFT_DELETED}
)
_VERSION_DELETED = frozenset({int(RegistryErrorCode.VERSION_SOFT_DELETED)})
_NO_MODE = frozenset({RegistryErrorCode.MODE_NOT_CONFIGURED, RegistryErrorCode.SUBJECT_NOT_FOUND})
_HEADERS = {
    "Accept": "application/vnd.schemaregistry.v1+json, application/json",
    "Content-Type": "application/vnd.schemaregistry.v1+json",
}

Version = int | Literal["latest"]
JsonObject = Mapping[str, object]
Query = dict[str, str]
T = TypeVar("T")


class RegistryUnavailable(Exception):
    """No instance of the registry responded. The message names the address without credentials."""


class RegistryRefusal(Exception):
    """The registry returned an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (error {code})")
        self.status = status
        self.code = code
        self.message = message


class UnexpectedResponse(Exception):
    """A response is not of the form that the interface defines."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password of HTTP basic authentication. The password is not part of the text."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema as a registry returns it. Fields that a response does not have are None."""

    text: str
    kind: str = SchemaKind.AVRO
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    subject: str | None = None
    version: int | None = None
    id: int | None = None
    guid: str | None = None

    @classmethod
    def from_json(cls, body: object) -> StoredSchema:
        """Return the schema of a response.

        Raises:
            UnexpectedResponse: The response has no text or a field of a wrong type.
        """
        fields = _object(body)
        return cls(
            text=_text(fields, "schema"),
            kind=str(fields.get("schemaType") or SchemaKind.AVRO),
            references=tuple(map(_reference, _list(fields.get("references") or []))),
            metadata=_optional_object(fields.get("metadata")),
            rule_set=_optional_object(fields.get("ruleSet") or fields.get("ruleset")),
            subject=_optional(fields.get("subject"), str),
            version=_optional(fields.get("version"), int),
            id=_optional(fields.get("id"), int),
            guid=_optional(fields.get("guid"), str),
        )

    def to_request(self) -> dict[str, object]:
        """Return the body of a request about this schema, without subject, version, id and guid."""
        body: dict[str, object] = {"schema": self.text, "schemaType": str(self.kind)}
        if self.references:
            body["references"] = [reference_to_json(each) for each in self.references]
        if self.metadata is not None:
            body["metadata"] = self.metadata
        if self.rule_set is not None:
            body["ruleSet"] = self.rule_set
        return body


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a compatibility check."""

    is_compatible: bool
    reasons: tuple[str, ...]


def reference_to_json(reference: Reference) -> dict[str, object]:
    """Return a reference as requests and the index of an export write it."""
    return {
        "name": reference.name,
        "subject": reference.subject,
        "version": reference.version,
    }


def parse_urls(text: str) -> list[str]:
    """Return the addresses of a list that is separated by commas.

    Raises:
        ValueError: An address is not of the form http://HOST[:PORT][/PATH].
    """
    urls = [each.strip().rstrip("/") for each in text.split(",") if each.strip()]
    if not urls:
        raise ValueError("is empty")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{without_credentials(url)!r} is not of the form http://HOST:PORT")
        parts.port  # noqa: B018  raises ValueError if it is not a number
    return urls


def without_credentials(url: str) -> str:
    """Return a URL without the user and password that it may contain."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class RegistryClient:
    """Requests to the instances of one registry.

    Args:
        urls: Addresses of the instances. The client uses the next one after a failed connection.
        http: The HTTP client, with its time limit and credentials. `close` closes it.
        notify: Receives one line before the first repetition of a request.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        urls: Sequence[str],
        http: httpx.Client,
        notify: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._urls = list(urls)
        self._http = http
        self._notify = notify
        self._sleep = sleep
        self._first = 0
        self._notified = False

    @property
    def address(self) -> str:
        """The addresses of the instances without credentials."""
        return ",".join(map(without_credentials, self._urls))

    def close(self) -> None:
        self._http.close()

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Return the subjects of all contexts in the order of their names."""
        body = self._get("/subjects", {"deleted": _flag(deleted)})
        return sorted(_strings(body))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject in ascending order."""
        path = f"/subjects/{_quoted(subject)}/versions"
        return sorted(_integers(self._get(path, {"deleted": _flag(deleted)})))

    def existing_versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, or none if the subject does not exist."""
        try:
            return self.versions(subject, deleted=deleted)
        except RegistryRefusal as refusal:
            if refusal.code in _NO_SUBJECT:
                return []
            raise

    def version(
        self, subject: str, version: Version, *, deleted: bool = False, format_: str = ""
    ) -> StoredSchema:
        """Return a version of a subject."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        query = {"deleted": _flag(deleted)} | _format(format_)
        return StoredSchema.from_json(self._get(path, query))

    def schemas(
        self,
        prefix: str,
        *,
        deleted: bool = False,
        latest_only: bool = False,
        aliases: bool = False,
    ) -> Iterator[tuple[StoredSchema, tuple[str, ...]]]:
        """Yield the versions of all subjects with a prefix, and the aliases of their subjects.

        A subject has its own versions here, also if its config has an alias. By its name, a
        registry returns the versions of the alias.

        Args:
            prefix: The beginning of the names, ``:*:`` for all contexts.
            deleted: Include versions that are deleted softly.
            latest_only: Only the latest version of each subject.
            aliases: Request the aliases, too. Older registries ignore this.
        """
        query = {"subjectPrefix": prefix, "deleted": _flag(deleted)}
        query |= {"latestOnly": _flag(latest_only), "aliases": _flag(aliases)}
        offset = 0
        while True:
            page = {"offset": str(offset), "limit": str(SCHEMAS_PER_PAGE)}
            found = _list(self._get("/schemas", query | page))
            if not found:
                return
            for each in found:
                names = _strings(_object(each).get("aliases") or [])
                yield StoredSchema.from_json(each), tuple(names)
            offset += len(found)

    def schema_by_id(self, id_: int, *, subject: str = "", format_: str = "") -> StoredSchema:
        """Return the schema of an id. `subject` chooses the context."""
        query = ({"subject": subject} if subject else {}) | _format(format_)
        found = StoredSchema.from_json(self._get(f"/schemas/ids/{id_}", query))
        return replace(found, id=id_)

    def schema_by_guid(self, guid: UUID, *, format_: str = "") -> StoredSchema:
        """Return the schema of a guid."""
        found = StoredSchema.from_json(self._get(f"/schemas/guids/{guid}", _format(format_)))
        return replace(found, guid=str(guid))

    def subjects_of_id(self, id_: int, *, subject: str = "") -> list[str]:
        """Return the subjects that have a version with an id. `subject` chooses the context."""
        query = {"deleted": "true"} | ({"subject": subject} if subject else {})
        return sorted(_strings(self._get(f"/schemas/ids/{id_}/subjects", query)))

    def lookup(
        self, subject: str, schema: StoredSchema, *, normalize: bool = False, deleted: bool = False
    ) -> StoredSchema:
        """Return the version of a subject that has a schema."""
        query = {"normalize": _flag(normalize), "deleted": _flag(deleted)}
        path = f"/subjects/{_quoted(subject)}"
        return StoredSchema.from_json(self._send("POST", path, query, schema.to_request()))

    def register(self, subject: str, schema: StoredSchema, *, normalize: bool = False) -> int:
        """Register a schema, and return its id.

        `id` and `version` of the schema are sent if they are set, which needs the mode IMPORT.
        """
        body = schema.to_request()
        if schema.id is not None:
            body["id"] = schema.id
        if schema.version is not None:
            body["version"] = schema.version
        path = f"/subjects/{_quoted(subject)}/versions"
        response = _object(self._send("POST", path, {"normalize": _flag(normalize)}, body))
        return _integer(response, "id")

    def delete_version(self, subject: str, version: int) -> None:
        """Delete a version softly: its id remains readable."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        self._send("DELETE", path, {}, None, _VERSION_DELETED)

    def check(
        self,
        subject: str,
        schema: StoredSchema,
        *,
        version: Version | None = None,
        normalize: bool = False,
    ) -> Verdict:
        """Check a schema by the level of a subject: with one version, or with the level's."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        query = {"verbose": "true", "normalize": _flag(normalize)}
        response = _object(self._send("POST", path, query, schema.to_request()))
        reasons = _strings(response.get("messages") or [])
        return Verdict(response.get("is_compatible") is True, tuple(reasons))

    def config(self, subject: str | None = None, *, effective: bool = False) -> JsonObject | None:
        """Return the config of a subject, or of the registry if `subject` is None.

        Args:
            subject: The subject.
            effective: Return the config that applies, which may be the registry's. Otherwise the
                result is None if the subject has no config of its own.
        """
        query = {"defaultToGlobal": _flag(effective)}
        missing = RegistryErrorCode.COMPATIBILITY_NOT_CONFIGURED
        return self._setting("config", subject, query, missing)

    def set_config(self, subject: str | None, config: JsonObject) -> None:
        """Set the config of a subject, or of the registry if `subject` is None.

        `config` has the form of `config`'s result.
        """
        body = dict(config)
        level = body.pop("compatibilityLevel", None)
        if level is not None:
            body["compatibility"] = level
        self._send("PUT", _setting_path("config", subject), {}, body)

    def mode(self, subject: str | None = None) -> str | None:
        """Return the mode of the registry, or a subject's own mode, which may be None."""
        query = {"defaultToGlobal": "false"}
        body = self._setting("mode", subject, query, RegistryErrorCode.MODE_NOT_CONFIGURED)
        return None if body is None else _optional(body.get("mode"), str)

    def set_mode(self, subject: str | None, mode: str | None) -> None:
        """Set a mode, also IMPORT for a subject with versions. None: remove a subject's mode."""
        path = _setting_path("mode", subject)
        if mode is not None:
            self._send("PUT", path, {"force": "true"}, {"mode": mode})
            return
        try:
            self._send("DELETE", path, {}, None)
        except RegistryRefusal as refusal:
            # The deletion of a subject's last version has deleted the mode already.
            if refusal.code not in _NO_MODE:
                raise

    def resolve(self, schema: StoredSchema) -> tuple[ResolvedReference, ...]:
        """Return the texts of all references of a schema, in the order of dependency.

        Raises:
            UnexpectedResponse: The schema references more than `REFERENCES_MAX` schemas.
        """
        resolved: dict[tuple[str, str, int], str] = {}
        self._resolve(schema, schema.subject or "", resolved, set())
        return tuple(ResolvedReference(name, text) for (name, _, _), text in resolved.items())

    def _resolve(
        self,
        schema: StoredSchema,
        parent: str,
        resolved: dict[tuple[str, str, int], str],
        seen: set[tuple[str, str, int]],
    ) -> None:
        for each in schema.references:
            subject = str(QualifiedSubject.parse(parent).relative(each.subject))
            key = (each.name, subject, each.version)
            if key in seen:
                continue
            if len(seen) >= REFERENCES_MAX:
                raise UnexpectedResponse(f"A schema has more than {REFERENCES_MAX} references.")
            seen.add(key)
            found = self.version(subject, each.version, deleted=True)
            self._resolve(found, subject, resolved, seen)
            resolved[key] = found.text

    def _setting(
        self, name: str, subject: str | None, query: Query, missing: int
    ) -> JsonObject | None:
        try:
            return _object(self._get(_setting_path(name, subject), query))
        except RegistryRefusal as refusal:
            # Some registries return 40401 for a subject without versions.
            if refusal.code in (missing, RegistryErrorCode.SUBJECT_NOT_FOUND):
                return None
            raise

    def _get(self, path: str, query: Query) -> object:
        return self._send("GET", path, query, None)

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        repeated: frozenset[int] = frozenset(),
    ) -> object:
        """Send a request, and repeat it while no instance responds.

        Args:
            method: The method.
            path: The path.
            query: The parameters of the query string.
            body: The body, which becomes JSON, or None.
            repeated: Errors of a repetition that mean that an earlier attempt was executed. The
                result is None then.

        Raises:
            RegistryRefusal: The registry returned an error.
            RegistryUnavailable: No instance responded.
            UnexpectedResponse: The response is not JSON.
        """
        import httpx

        done: frozenset[int] = frozenset()
        for wait_s in (*RETRY_WAITS_S, None):
            url = self._urls[self._first]
            try:
                response = self._http.request(
                    method, url + path, params=query, json=body, headers=_HEADERS
                )
                return _read(response)
            except httpx.TransportError as error:
                self._first = (self._first + 1) % len(self._urls)
                failure: Exception = RegistryUnavailable(
                    f"No registry responds at {without_credentials(url)}"
                    f" ({str(error) or type(error).__name__})"
                )
            except RegistryRefusal as refusal:
                if refusal.code in done:
                    return None
                if refusal.status not in _RETRIED_STATUSES and refusal.code not in _RETRIED_CODES:
                    raise
                failure = refusal
            if wait_s is None:
                raise failure
            self._wait(wait_s, failure)
            done = repeated
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, wait_s: float, failure: Exception) -> None:
        if not self._notified:
            self._notified = True
            self._notify(f"{failure}. The request is sent again.")
        self._sleep(wait_s)


def open_client(
    urls: Sequence[str], credentials: Credentials | None, notify: Callable[[str], None]
) -> RegistryClient:
    """Return a client over HTTP."""
    import httpx

    auth = None if credentials is None else (credentials.user, credentials.password)
    http = httpx.Client(timeout=RESPONSE_TIMEOUT_S, auth=auth)
    return RegistryClient(urls, http, notify)


def _read(response: httpx.Response) -> object:
    try:
        body: object = response.json()
    except ValueError:
        if response.is_success:
            raise UnexpectedResponse("The response of the registry is not JSON.") from None
        body = None
    if response.is_success:
        return body
    fields = body if isinstance(body, dict) else {}
    code, message = fields.get("error_code"), fields.get("message")
    raise RegistryRefusal(
        response.status_code,
        code if isinstance(code, int) else response.status_code,
        message if isinstance(message, str) else _reason(response),
    )


def _reason(response: httpx.Response) -> str:
    text = " ".join(response.text.split())[:ERROR_TEXT_MAX]
    return text or response.reason_phrase or f"HTTP status {response.status_code}"


def _quoted(subject: str) -> str:
    """Return a subject as one segment of a path. HTTP clients would resolve the segment `..`."""
    encoded = quote(subject, safe="")
    return encoded.replace(".", "%2E") if not encoded.strip(".") else encoded


def _setting_path(name: str, subject: str | None) -> str:
    return f"/{name}" if subject is None else f"/{name}/{_quoted(subject)}"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _format(name: str) -> Query:
    return {"format": name} if name else {}


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise UnexpectedResponse("A response of the registry is not a JSON object.")
    return value


def _optional_object(value: object) -> JsonObject | None:
    return None if value is None else _object(value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise UnexpectedResponse("A response of the registry is not a JSON array.")
    return value


def _strings(value: object) -> list[str]:
    return [each if isinstance(each, str) else str(each) for each in _list(value)]


def _integers(value: object) -> list[int]:
    found = [each for each in _list(value) if isinstance(each, int)]
    if len(found) != len(_list(value)):
        raise UnexpectedResponse("A response of the registry is not an array of integers.")
    return found


def _text(fields: JsonObject, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise UnexpectedResponse(f"A response of the registry has no text in the field {name!r}.")
    return value


def _integer(fields: JsonObject, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int):
        raise UnexpectedResponse(f"A response of the registry has no integer {name!r}.")
    return value


def _optional(value: object, kind: type[T]) -> T | None:
    return value if isinstance(value, kind) else None


def _reference(value: object) -> Reference:
    fields = _object(value)
    return Reference(_text(fields, "name"), _text(fields, "subject"), _integer(fields, "version"))
