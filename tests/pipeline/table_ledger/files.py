"""Files in memory with the operations of a sink's files, and a hook before each operation."""

from __future__ import annotations

from collections.abc import Callable


class FilesInMemory:
    """Files by path. A directory exists while a file is below it.

    `before` is called with the name of each operation and its path, so that a test can let another
    driver act at that point. `reads` counts the files that were read.
    """

    def __init__(self, before: Callable[[str, str], None] = lambda operation, path: None) -> None:
        self.texts: dict[str, str] = {}
        self.before = before
        self.reads = 0

    def exists(self, path: str) -> bool:
        self.before("exists", path)
        return path in self.texts or bool(self._below(path))

    def list_names(self, path: str) -> list[str]:
        self.before("list_names", path)
        return sorted({name[len(path) + 1 :].split("/")[0] for name in self._below(path)})

    def read_text(self, path: str) -> str:
        self.before("read_text", path)
        if path not in self.texts:
            raise FileNotFoundError(path)
        self.reads += 1
        return self.texts[path]

    def create_text(self, path: str, text: str) -> None:
        self.before("create_text", path)
        if path in self.texts:
            raise FileExistsError(path)
        self.texts[path] = text

    def replace_text(self, path: str, text: str) -> None:
        self.before("replace_text", path)
        self.texts[path] = text

    def delete(self, path: str) -> None:
        self.before("delete", path)
        for name in [*self._below(path), path]:
            self.texts.pop(name, None)

    def _below(self, path: str) -> list[str]:
        return [name for name in self.texts if name.startswith(f"{path}/")]
