"""Proof that the page cache still has what a killed broker of a cluster had written.

A broker registers with an identity of the machine's page cache. The controller takes a restart for
clean when the next process registers with the same identity, because a SIGKILL loses no page. A
write error may drop pages, and a crash may follow before the controller knows of the error. So the
identity has two parts: the boot id, and a random text in a boot note (`Files.write_boot_note`). The
failing thread removes the note first. The next process then writes another one, and its identity
differs.

A boot, a container with other memory, or a machine without such memory also change the identity.
The restart then counts as unclean, as each SIGKILL does in Kafka. A process that ends between the
error and the removal, within microseconds, is not noticed. Nor is an error of the kernel's
writeback that no fsync of a process has reported.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable

from odradek.environment.files import Files
from odradek.ids import Uuid, uuid_to_string
from odradek.log.log_dir import LogDir

logger = logging.getLogger(__name__)
NAME_DIGITS = 32


def note_name(paths: Iterable[str]) -> str:
    """Return the name of the boot note of a broker with these log directories."""
    digest = hashlib.sha256("\n".join(sorted(paths)).encode("utf-8", "surrogateescape"))
    return f"odradek-{digest.hexdigest()[:NAME_DIGITS]}"


class PageCacheMark:
    """The boot note of one broker.

    Args:
        files: The file system.
        paths: The log directories, which give the note its name.
        new_id: Makes a random id.
    """

    def __init__(self, files: Files, paths: Iterable[str], new_id: Callable[[], Uuid]) -> None:
        self._files = files
        self._new_id = new_id
        self._name = note_name(paths)

    def identity(self) -> str:
        """Return the identity of the page cache, or "" if it cannot be known.

        The note is written if there is none. Call this before the log directories are read.
        """
        boot_id = self._files.boot_id
        if not boot_id:
            return ""
        note = self._files.boot_note(self._name)
        if not note:
            note = uuid_to_string(self._new_id())
            try:
                self._files.remove_boot_note(self._name)  # a crash may have left an empty one
                self._files.write_boot_note(self._name, note)
            except OSError as error:
                logger.warning(
                    "cannot write the boot note %s: %s. After a SIGKILL, the controller takes the "
                    "next start of this broker for unclean",
                    self._name,
                    error,
                )
                return ""
        return f"{boot_id}/{note}"

    def pages_lost(self, log_dir: LogDir) -> None:
        """Remove the note. Called on the thread that has got the error."""
        try:
            self._files.remove_boot_note(self._name)
        except OSError as error:
            logger.warning(
                "cannot remove the boot note %s after the failure of %s: %s. Boot the machine "
                "before the broker starts again, if it is killed",
                self._name,
                log_dir,
                error,
            )
