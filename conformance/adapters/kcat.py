"""kcat: the command line of librdkafka, as a process. Keys and values must be text lines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

from conformance import stacks
from conformance.adapters.base import DEADLINE_S, Rec, idempotence
from conformance.harness import Skip

SEPARATOR = "|"
METADATA_S = 120  # kcat's own default is five seconds


def kcat(
    bootstrap: str, *arguments: str, stdin: str | None = None, timeout_s: float = DEADLINE_S
) -> str:
    """Run kcat. Return its output; raise if it ends with an error."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        raise Skip("kcat is not installed: it is the package `kcat` (or `kafkacat`) of the system")
    command = [program, "-b", bootstrap, "-m", str(METADATA_S), *arguments]
    if "-P" in arguments and idempotence():
        command += ["-X", "enable.idempotence=true"]
    done = stacks.run(command, stdin=stdin, timeout_s=timeout_s)
    assert done.returncode == 0, f"kcat {arguments} ended with {done.returncode}: {done.stderr}"
    return done.stdout


class KcatClient:
    """The operations of a client that kcat supports: produce lines, read from an offset."""

    name = "kcat"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        lines = "".join(
            f"{(r.key or b'').decode()}{SEPARATOR}{(r.value or b'').decode()}\n" for r in records
        )
        kcat(
            bootstrap,
            "-P",
            "-t",
            topic,
            "-p",
            "0",
            "-K",
            SEPARATOR,
            "-z",
            compression,
            "-X",
            f"enable.idempotence={str(idempotent).lower()}",
            "-X",
            f"message.max.bytes={max_bytes}",
            stdin=lines,
        )
        return []

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        max_bytes: int = 1_048_576,
    ) -> list[Rec]:
        output = kcat(
            bootstrap,
            "-C",
            "-t",
            topic,
            "-p",
            str(partition),
            "-o",
            str(offset),
            "-c",
            str(count),
            "-J",
            "-q",
        )
        return [_rec(json.loads(line)) for line in output.splitlines()]


def _rec(row: dict[str, object]) -> Rec:
    def raw(field: object) -> bytes | None:
        return None if field is None else str(field).encode()

    names = row.get("headers") or []
    assert isinstance(names, list)
    headers = tuple((str(k), raw(v)) for k, v in zip(names[::2], names[1::2], strict=True))
    return Rec(
        raw(row.get("payload")),
        raw(row.get("key")),
        headers,
        int(str(row["ts"])),
        int(str(row["partition"])),
        int(str(row["offset"])),
    )
