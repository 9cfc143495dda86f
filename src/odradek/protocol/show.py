"""Print the source that is compiled for one message and version.

python -m odradek.protocol.show FetchResponse 12
"""

from __future__ import annotations

import sys

from odradek.protocol.compile import decode_source, encode_source
from odradek.protocol.spec import find


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise SystemExit("usage: python -m odradek.protocol.show MESSAGE VERSION")
    spec, version = find(arguments[0]), int(arguments[1])
    sys.stdout.write(decode_source(spec, version)[0] + "\n" + encode_source(spec, version)[0])


if __name__ == "__main__":
    main(sys.argv[1:])
