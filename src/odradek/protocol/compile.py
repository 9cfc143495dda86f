"""Compiler of a message's definition, for one version, into two straight-line Python functions.

The functions are ``decode(view, pos) -> (message, pos)`` and ``encode(message, append) -> None``.
Everything is inlined: there is no call for a field and no test of a version. The decoder of a
request takes its limit of elements as third argument.

One precompiled `struct.Struct` reads or writes each run of consecutive fixed-width fields. It also
covers the length byte, or the zero of the empty tag section, that follows the run. A compact length
below 128 and an empty tag section need no branch or call.

Both functions are also compiled for time slices (`odradek.slicing`), as generators that yield after
every `ELEMENTS_PER_SLICE` elements and return the same.

In compiled code the names of the message's fields have the suffix ``_0``, those of the fields of a
struct in it ``_1``, and so on. The source is registered in `linecache`, so tracebacks show it.
``python -m odradek.protocol.show FetchResponse 12`` prints it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from odradek.protocol.spec import (
    FIXED_CODES,
    FIXED_SIZES,
    NEW_STRUCT,
    NO_VERSIONS,
    FieldSpec,
    MessageSpec,
    StructSpec,
    min_element_size,
)


class _Source:
    """Lines of source, their indentation, and the fixed-width fields that are not yet written."""

    def __init__(self, spec: MessageSpec, version: int, sliced: bool = False) -> None:
        self.spec = spec
        self.version = version
        self.sliced = sliced
        self.flexible = spec.is_flexible(version)
        self.lines: list[str] = []
        self.indent = 0
        self.run: list[tuple[str, str]] = []
        self.structs: dict[str, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.indent += 1
        yield
        self.indent -= 1

    def when(self, condition: str, statement: str) -> None:
        with self.block(f"if {condition}:"):
            self.line(statement)

    def begin_slices(self) -> None:
        """Make the function a generator, even if it has no loop, and start counting."""
        if self.sliced:
            self.line("elements_left = ELEMENTS_PER_SLICE")
            self.when("elements_left < 0", "yield")

    def count_element(self) -> None:
        """Count one element at the top of a loop, and end a slice that is over."""
        if self.sliced:
            self.line("elements_left -= 1")
            with self.block("if elements_left < 0:"):
                self.line("elements_left = ELEMENTS_PER_SLICE - 1")
                self.line("yield")

    def fixed(self, code: str, value: str) -> None:
        """Add a fixed-width field to the run: its struct code, and its target or expression."""
        self.run.append((code, value))

    def take_run(self, prefix: str) -> tuple[str, str, list[str]]:
        """End the run. Return its precompiled struct function's name, its format and its values."""
        run, self.run = self.run, []
        form = ">" + "".join(code for code, _ in run)
        name = prefix + form[1:].replace("?", "o")
        self.structs[name] = form
        return name, form, [value for code, value in run if code != "x"]

    def is_flexible_field(self, field: FieldSpec) -> bool:
        return self.flexible if field.flexible is None else field.flexible.has(self.version)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class _Decoder(_Source):
    def __init__(self, spec: MessageSpec, version: int, sliced: bool = False) -> None:
        super().__init__(spec, version, sliced)
        # A client's requests are bounded in their number of elements. The broker's files are not.
        self.counted = spec.kind == "request"

    def count(self, name: str, number: str) -> None:
        """Add code that subtracts `number` elements from the elements that a request may have."""
        if self.counted:
            self.line(f"left -= {number}")
            self.when("left < 0", f"raise too_many({name!r})")

    def function(self) -> None:
        message = f"{self.spec.name} v{self.version} ends within a field"
        left = ", left=REQUEST_ELEMENTS_MAX" if self.counted else ""
        with self.block(f"def decode(view, pos{left}):"):
            self.begin_slices()
            self.line("size = len(view)")
            with self.block("try:"):
                self.line(f"return {self.struct(self.spec.body, 0)}, pos")
            with self.block("except (StructError, IndexError) as error:"):
                self.line(f"raise MalformedMessage({message!r}) from error")

    def flush(self) -> None:
        if not self.run:
            return
        if [code for code, _ in self.run] == ["B"]:
            self.line(f"{self.run.pop()[1]} = view[pos]")
            self.line("pos += 1")
            return
        name, form, targets = self.take_run("u_")
        self.line(f"{', '.join(targets)}{',' * (len(targets) == 1)} = {name}(view, pos)")
        self.line(f"pos += {struct.calcsize(form)}")

    def struct(self, spec: StructSpec, depth: int) -> str:
        """Read a struct's fields into locals. Return the expression that constructs it."""
        for field in spec.present(self.version):
            self.field(field, depth)
        if self.flexible:
            self.tags(spec, depth)
        self.flush()
        values = (
            f"{field.attribute}_{depth}" if field.versions.has(self.version) else _literal(field)
            for field in spec.fields
        )
        return f"{spec.name}({', '.join(values)})"

    def field(self, field: FieldSpec, depth: int) -> None:
        target = f"{field.attribute}_{depth}"
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self.array(field, target, depth)
        elif field.struct is not None and nullable:
            # One byte, negative for null. In a tagged field, a varint that is 0 for null.
            is_tagged = field.tagged.has(self.version)
            self.line("n, pos = uvarint_at(view, pos)") if is_tagged else self.fixed("B", "n")
            self.flush()
            self.when("not n" if is_tagged else "n > 127", f"{target} = None")
            with self.block("else:"):
                self.line(f"{target} = {self.struct(field.struct, depth + 1)}")
        else:
            self.value(field, target, nullable, depth)

    def value(self, field: FieldSpec, target: str, nullable: bool, depth: int) -> None:
        """Read one value that is not an array: a field, or an array's element."""
        if field.struct is not None:
            self.line(f"{target} = {self.struct(field.struct, depth + 1)}")
        elif field.kind in FIXED_SIZES:
            self.fixed(FIXED_CODES[field.kind], target)
        else:
            with self.length(field, target, nullable):
                self.slice(field, target)

    @contextmanager
    def length(self, field: FieldSpec, target: str, nullable: bool) -> Iterator[None]:
        """Read a length into `n`. The body of the block runs if the value is not null."""
        flexible = self.is_flexible_field(field)
        is_string = field.kind == "string" and not field.is_array
        self.fixed("B" if flexible else "h" if is_string else "i", "n")
        self.flush()
        if flexible:
            with self.block("if n > 127:"):
                self.line("n, pos = uvarint_rest(view, pos, n)")
                if is_string:
                    self.when("n > 32768", f"raise string_too_long({field.name!r}, n - 1)")
        absent = "not n" if flexible else "n < 0"
        self.when(absent, f"{target} = None" if nullable else f"raise null({field.name!r})")
        with self.block("else:") if nullable else nullcontext():
            yield

    def slice(self, field: FieldSpec, target: str) -> None:
        self.line("end = pos + n - 1" if self.is_flexible_field(field) else "end = pos + n")
        self.when("end > size", f"raise too_long({field.name!r}, end - pos, size - pos)")
        reader = {
            # As Kafka reads it: bytes that are not UTF-8 become U+FFFD and are no error.
            "string": 'str(view[pos:end], "utf-8", "replace")',
            "bytes": "bytes(view[pos:end])",
            "records": "view[pos:end]",
        }[field.kind]
        self.line(f"{target} = {reader}")
        self.line("pos = end")

    def array(self, field: FieldSpec, target: str, depth: int) -> None:
        flexible = self.is_flexible_field(field)
        smallest = min_element_size(field, self.version, flexible)
        assert smallest > 0, f"an element of {field.name} has no bytes, so its count is unbounded"
        with self.length(field, target, field.is_nullable(self.version)):
            if flexible:
                self.line("n -= 1")
            needed = f"n * {smallest}" if smallest > 1 else "n"
            self.when(f"{needed} > size - pos", f"raise too_long({field.name!r}, n, size - pos)")
            self.count(field.name, "n")
            self.elements(field, target, depth)

    def elements(self, field: FieldSpec, target: str, depth: int) -> None:
        if field.kind in FIXED_SIZES and field.kind != "uuid":
            form = f'f">{{n}}{FIXED_CODES[field.kind]}"'
            self.line(f"{target} = list(unpack_from({form}, view, pos))")
            self.line(f"pos += n * {FIXED_SIZES[field.kind]}")
            return
        self.line(f"{target} = []")
        with self.block("for _ in range(n):"):
            self.count_element()
            if field.struct is not None:
                element = self.struct(field.struct, depth + 1)
            else:
                element = f"{field.attribute}_{depth + 1}"
                self.value(field.element(), element, False, depth + 1)
                self.flush()
            self.line(f"{target}.append({element})")

    def tags(self, spec: StructSpec, depth: int) -> None:
        tagged = spec.tagged(self.version)
        count = f"_tags_{depth}" if tagged else "n"
        self.fixed("B", count)
        self.flush()
        for field in tagged:
            self.line(f"{field.attribute}_{depth} = {_literal(field)}")
        with self.block(f"if {count}:"):
            if not tagged:
                self.count(spec.name, "n")
                self.line("pos = skip_tags(view, pos, n)")
                return
            self.line(f"{count}, pos = tag_count(view, pos, {count})")
            self.count(spec.name, count)
            with self.block(f"for _ in range({count}):"):
                self.known_tags(tagged, depth)

    def known_tags(self, tagged: list[FieldSpec], depth: int) -> None:
        tag, stop = f"_tag_{depth}", f"_stop_{depth}"
        self.line(f"{tag}, pos, {stop} = tag_header(view, pos)")
        for index, field in enumerate(tagged):
            with self.block(f"{'el' if index else ''}if {tag} == {field.tag}:"):
                self.field(field, depth)
                self.flush()
                self.when(f"pos != {stop}", f"raise tag_mismatch({field.name!r}, {stop}, pos)")
        with self.block("else:"):
            self.line(f"pos = {stop}")


class _Encoder(_Source):
    append = "append"

    def function(self) -> None:
        errors = "(StructError, TypeError, AttributeError, UnicodeEncodeError)"
        title = f"{self.spec.name} v{self.version}: "
        with self.block("def encode(message_0, append):"):
            self.begin_slices()
            with self.block("try:"):
                self.struct(self.spec.body, "message_0", 0)
                self.flush()
                self.line("return")
            with self.block(f"except {errors} as error:"):
                self.line(f"raise UnencodableMessage({title!r} + str(error)) from error")

    def flush(self) -> None:
        if not self.run:
            return
        name, form, values = self.take_run("p_")
        packed = f"{name}({', '.join(values)})" if values else repr(bytes(struct.calcsize(form)))
        self.line(f"{self.append}({packed})")

    def flush_varint(self, function: str) -> None:
        """End the run with varint `n`, which is packed with it if it has one byte."""
        if not self.run:
            self.line(f"{self.append}(BYTE[n] if n < 128 else {function}(n))")
            return
        run = list(self.run)
        long_name, form, values = self.take_run("p_")
        long = f"{long_name}({', '.join(values)})" if values else repr(bytes(len(form) - 1))
        self.run = [*run, ("B", "n")]
        name, _, values = self.take_run("p_")
        short = f"{name}({', '.join(values)})"
        self.line(f"{self.append}({short} if n < 128 else {long} + {function}(n))")

    def struct(self, spec: StructSpec, value: str, depth: int) -> None:
        """Write the struct in local `value`. The last run may still be open afterwards."""
        for field in spec.absent(self.version):
            if not field.ignorable:
                is_set = _differs(field, f"{value}.{field.attribute}")
                self.when(is_set, f"raise missing({field.name!r}, {self.version})")
        for field in spec.present(self.version):
            self.field(field, value, depth)
        if self.flexible:
            self.tags(spec, value, depth)

    def field(self, field: FieldSpec, owner: str, depth: int) -> None:
        source = f"{owner}.{field.attribute}"
        local = f"{field.attribute}_{depth + 1}"
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self.array(field, source, depth, nullable)
        elif field.struct is not None and nullable:
            self.flush()
            self.line(f"{local} = {source}")
            null = bytes(1) if field.tagged.has(self.version) else b"\xff"
            self.when(f"{local} is None", f"{self.append}({null!r})")
            with self.block("else:"):
                self.fixed("B", "1")
                self.struct(field.struct, local, depth + 1)
                self.flush()
        else:
            self.value(field, source, local, nullable, depth)

    def value(self, field: FieldSpec, source: str, local: str, nullable: bool, depth: int) -> None:
        """Write one value that is not an array: expression `source`. `local` may hold it."""
        if field.struct is not None:
            self.flush()
            self.line(f"{local} = {source}")
            self.struct(field.struct, local, depth + 1)
        elif field.kind in FIXED_SIZES:
            if field.kind == "uuid":
                self.when(f"len({source}) != 16", f"raise not_a_uuid({field.name!r}, {source})")
            self.fixed(FIXED_CODES[field.kind], source)
        else:
            self.sized(field, source, nullable)

    def sized(self, field: FieldSpec, source: str, nullable: bool) -> None:
        is_string = field.kind == "string"
        flexible = self.is_flexible_field(field)
        length = f"n = len(data){' + 1' if flexible else ''}"
        encode = ".encode()" if is_string else ""
        if not nullable:
            self.line(f"data = {source}{encode}")
            self.line(length)
        else:
            self.line(f"data = {source}")
            self.line(f"n = {0 if flexible else -1}")
            with self.block("if data is not None:"):
                if is_string:
                    self.line(f"data = data{encode}")
                self.line(length)
        self.length(flexible, is_string)
        self.when(f"n > {int(flexible)}", f"{self.append}(data)")

    def length(self, flexible: bool, is_string: bool) -> None:
        if flexible:
            self.flush_varint("string_uvarint" if is_string else "uvarint")
        else:
            self.fixed("h" if is_string else "i", "n")
            self.flush()

    def array(self, field: FieldSpec, source: str, depth: int, nullable: bool) -> None:
        flexible = self.is_flexible_field(field)
        values = f"{field.attribute}_{depth}"
        self.line(f"{values} = {source}")
        null = f"{0 if flexible else -1} if {values} is None else " if nullable else ""
        self.line(f"n = {null}len({values}){' + 1' if flexible else ''}")
        self.length(flexible, False)
        if field.kind in FIXED_SIZES and field.kind != "uuid":
            with self.block(f"if {values}:"):
                form = f'f">{{len({values})}}{FIXED_CODES[field.kind]}"'
                self.line(f"{self.append}(pack({form}, *{values}))")
            return
        element = f"{field.attribute}_{depth + 1}"
        with self.block(f"for {element} in {values}{' or ()' if nullable else ''}:"):
            self.count_element()
            if field.struct is not None:
                self.struct(field.struct, element, depth + 1)
            else:
                self.value(field.element(), element, element, False, depth + 1)
            self.flush()

    def tags(self, spec: StructSpec, value: str, depth: int) -> None:
        tagged = spec.tagged(self.version)
        if not tagged:
            self.fixed("x", "")
            return
        tests = [_differs(field, f"{value}.{field.attribute}") for field in tagged]
        run = list(self.run)
        with self.block(f"if {' or '.join(f'({test})' for test in tests)}:"):
            self.flush()
            self.line(f"_tags_{depth} = []")
            for field, test in zip(tagged, tests, strict=True):
                with self.block(f"if {test}:"):
                    self.tag(field, value, depth)
            self.line(f"write_tags({self.append}, _tags_{depth})")
        with self.block("else:"):
            self.run = [*run, ("x", "")]
            self.flush()

    def tag(self, field: FieldSpec, value: str, depth: int) -> None:
        outer, self.append = self.append, f"_append_{depth}"
        self.line(f"_tag_{depth} = []")
        self.line(f"_append_{depth} = _tag_{depth}.append")
        self.field(field, value, depth)
        self.flush()
        self.append = outer
        self.line(f"_tags_{depth}.append(({field.tag}, _tag_{depth}))")


def _literal(field: FieldSpec) -> str:
    """Return the default of a field that is absent, as source."""
    if field.default is NEW_STRUCT:
        assert field.struct is not None
        return f"{field.struct.name}()"
    return "ZERO_UUID" if field.kind == "uuid" and not field.is_array else repr(field.default)


def _differs(field: FieldSpec, value: str) -> str:
    """Return the test whether expression `value` differs from the field's default, as source."""
    if field.struct is not None and not field.is_array and field.default is None:
        is_set = f"{value} is not None"
        return f"{is_set} and {value} != {field.struct.name}()" if field.tag >= 0 else is_set
    if field.default is None:
        return f"{value} is not None"
    if field.default in (False, [], "") and field.nullable == NO_VERSIONS:
        return value
    return f"{value} != {_literal(field)}"


def decode_source(
    spec: MessageSpec, version: int, sliced: bool = False
) -> tuple[str, dict[str, str]]:
    """Return the source of ``decode``, and its struct formats by the name of their unpack_from."""
    decoder = _Decoder(spec, version, sliced)
    decoder.function()
    return decoder.text(), decoder.structs


def encode_source(
    spec: MessageSpec, version: int, sliced: bool = False
) -> tuple[str, dict[str, str]]:
    """Return the source of ``encode``, and its struct formats by the name of their pack."""
    encoder = _Encoder(spec, version, sliced)
    encoder.function()
    return encoder.text(), encoder.structs
