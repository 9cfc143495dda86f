"""The child process of `odradek.registry.schemas.protoc`: protoc, once, within limits.

Run as a script without site packages, which makes it start in few milliseconds::

    python -I -S protoc_child.py DIRECTORY ARGUMENT...

DIRECTORY contains the package `grpc_tools`. The arguments are those of protoc. The process exits
with protoc's exit code.
"""

from __future__ import annotations

import resource
import sys

CPU_SECONDS_MAX = 10
"""Maximum processor time of one run."""

MEMORY_BYTES_MAX = 1_073_741_824
"""Maximum address space of one run."""

FILE_BYTES_MAX = 67_108_864
"""Maximum size of the descriptors, and of the error messages, that one run writes."""


IMPORT_FAILED = 3
"""The exit code if `grpc_tools` cannot be imported. protoc has the exit codes 0 and 1."""


def set_limits() -> None:
    """Limit this process. An existing lower limit stays."""
    limits = {
        resource.RLIMIT_CPU: CPU_SECONDS_MAX,
        resource.RLIMIT_AS: MEMORY_BYTES_MAX,
        resource.RLIMIT_FSIZE: FILE_BYTES_MAX,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))


def main(directory: str, arguments: list[str]) -> int:
    """Run protoc and return its exit code."""
    set_limits()
    sys.path.append(directory)
    try:
        from grpc_tools import protoc
    except ImportError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return IMPORT_FAILED

    return int(protoc.main(["protoc", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
