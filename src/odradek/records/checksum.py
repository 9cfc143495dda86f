"""CRC-32C from the `crc32c` package's C extension, loaded without the package around it.

``crc32c/__init__.py`` reads its own version through `importlib.metadata`, which takes a fifth of
the time that a broker needs to start. If the extension is not found, the package itself is
imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("crc32c._crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            extension = module_from_spec(spec)
            spec.loader.exec_module(extension)
            found: Callable[..., int] = extension.crc32c
            return found
    import crc32c as whole

    return whole.crc32c


crc32c = _load()
"""``crc32c(data, value=0)``: the checksum of any buffer, continued from `value`."""
