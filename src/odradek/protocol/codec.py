"""Encoding and decoding of messages with compiled codecs.

The codec of a message and version is compiled on first use. The compiler is imported then, too, so
that a broker starts faster.

A decoder takes a buffer and a position, and returns the message and the position after it. Bytes
that follow the message are not an error, as in Kafka. Fields of type records stay views into the
buffer, everything else is copied. An encoder passes chunks to `append`. Records are appended by
reference, without a copy.
"""

from __future__ import annotations

import linecache
import struct
import sys
from collections.abc import Callable, Generator
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from odradek.protocol import wire
from odradek.protocol.errors import MalformedMessage, UnencodableMessage, UnknownVersion
from odradek.protocol.wire import Append, Chunk
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

if TYPE_CHECKING:
    from odradek.protocol.spec import MessageSpec


class Message(Protocol):
    """The attributes that all generated message classes have."""

    SPEC: ClassVar[str]
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]


M = TypeVar("M", bound=Message)
Decoder = Callable[[memoryview, int], tuple[M, int]]
RequestDecoder = Callable[[memoryview, int, int], tuple[M, int]]
Encoder = Callable[[M, Append], None]

_RUNTIME: dict[str, Any] = {
    name: value for name, value in vars(wire).items() if not name.startswith("_")
} | {
    "MalformedMessage": MalformedMessage,
    "UnencodableMessage": UnencodableMessage,
    "StructError": struct.error,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    "ELEMENTS_PER_SLICE": ELEMENTS_PER_SLICE,
    "BYTE": tuple(bytes((value,)) for value in range(128)),
    "ZERO_UUID": bytes(16),
}


_functions: dict[tuple[type[Message], int, str, bool], Any] = {}


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """Return the function ``(view, pos) -> (message, pos)`` for this version.

    Raises:
        UnknownVersion: The message has no such version. The returned function raises
            `MalformedMessage`.
    """
    return _function(cls, version, "decode")  # type: ignore[no-any-return]


def request_decoder(cls: type[M], version: int) -> RequestDecoder[M]:
    """Return the function ``(view, pos, elements_max) -> (message, pos)`` of a request.

    The function raises `TooManyElements` for more than `elements_max` elements, and otherwise
    fails like `decoder`.
    """
    return _function(cls, version, "decode")  # type: ignore[no-any-return]


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """Return the function ``(message, append) -> None`` for this version.

    Raises:
        UnknownVersion: The message has no such version. The returned function raises
            `UnencodableMessage`, and may have appended a part of the message before.
    """
    return _function(cls, version, "encode")  # type: ignore[no-any-return]


def decoding(
    cls: type[M], version: int, view: memoryview, pos: int
) -> Generator[None, None, tuple[M, int]]:
    """Decode as `decoder` does. Yield after every `ELEMENTS_PER_SLICE` elements.

    The first use of a version compiles its codec in time slices of its own.
    """
    decode = yield from _sliced_function(cls, version, "decode")
    return (yield from decode(view, pos))  # type: ignore[no-any-return]


def encoding(cls: type[M], version: int, message: M, append: Append) -> Generator[None, None, None]:
    """Encode as `encoder` does. Yield after every `ELEMENTS_PER_SLICE` elements.

    The first use of a version compiles its codec in time slices of its own.
    """
    encode = yield from _sliced_function(cls, version, "encode")
    yield from encode(message, append)


def _function(cls: type[Message], version: int, which: str) -> Any:
    found = _functions.get((cls, version, which, False))
    return found or run_to_completion(_compiling(cls, version, which, False))


def _sliced_function(cls: type[Message], version: int, which: str) -> Generator[None, None, Any]:
    found = _functions.get((cls, version, which, True))
    if found is None:
        yield
        found = yield from _compiling(cls, version, which, True)
        yield
    return found


def _compiling(
    cls: type[Message], version: int, which: str, sliced: bool
) -> Generator[None, None, Any]:
    """Compile the function. Each of the two steps takes 1 ms, and 3 ms with cold caches."""
    from odradek.protocol import compile as compiler

    compiled = compiler.decode_source if which == "decode" else compiler.encode_source
    source, formats = compiled(_spec(cls, version), version, sliced)
    yield
    method = "unpack_from" if which == "decode" else "pack"
    structs = {name: getattr(struct.Struct(form), method) for name, form in formats.items()}
    function = _link(cls, version, f"{which}{' in slices' * sliced}", source, structs)
    _functions[cls, version, which, sliced] = function
    return function


def decode(cls: type[M], version: int, buffer: memoryview | bytes, pos: int = 0) -> M:
    """Return the message at `pos` of `buffer`.

    Raises:
        MalformedMessage: The bytes are not such a message.
        UnknownVersion: The message has no such version.
    """
    return decoder(cls, version)(memoryview(buffer), pos)[0]


def encode(message: Message, version: int) -> bytes:
    """Return the message's bytes, with its records.

    For messages without file regions, because regions have no bytes in memory to join.

    Raises:
        UnencodableMessage: A value does not fit the version.
        UnknownVersion: The message has no such version.
    """
    chunks: list[Chunk] = []
    encoder(type(message), version)(message, chunks.append)
    return b"".join(chunks)  # type: ignore[arg-type]


def _spec(cls: type[Message], version: int) -> MessageSpec:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        known = f"{cls.MIN_VERSION} to {cls.MAX_VERSION}"
        raise UnknownVersion(f"{cls.SPEC} has versions {known}, not {version}")
    from odradek.protocol.spec import load

    return load(cls.SPEC)


def _link(
    cls: type[Message], version: int, function: str, source: str, structs: dict[str, Any]
) -> Any:
    """Execute compiled source with the classes of the message's module. Tracebacks show it."""
    filename = f"<odradek {cls.SPEC} v{version} {function}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace = {**_RUNTIME, **vars(sys.modules[cls.__module__]), **structs}
    code: CodeType = compile(source, filename, "exec")
    exec(code, namespace)  # noqa: S102 - source made by compile.py from our own definitions
    return namespace[function.partition(" ")[0]]
