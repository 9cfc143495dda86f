"""The identity of the page cache survives the process, and ends with a write error or a boot."""

from __future__ import annotations

import errno
import os
from itertools import count
from pathlib import Path

import pytest

from odradek.broker.page_cache_mark import PageCacheMark
from odradek.environment import files as real_files
from odradek.environment.clock import SystemClock
from odradek.environment.files import RealFiles
from odradek.ids import Uuid
from odradek.log.file_pool import FilePool
from odradek.log.log_dir import LogDir
from odradek.log.segments.log_segment import IndexCache

NUMBERS = count(1)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(real_files, "BOOT_NOTES", str(tmp_path))
    return tmp_path


def mark(*paths: str) -> PageCacheMark:
    return PageCacheMark(RealFiles(), paths, lambda: Uuid(next(NUMBERS).to_bytes(16, "big")))


def log_dir(found: PageCacheMark) -> LogDir:
    files = RealFiles()
    pool = FilePool(files, 100)
    directory = LogDir("/data", pool, IndexCache(), SystemClock())
    directory.on_lost_pages(found.pages_lost)
    return directory


@pytest.mark.usefixtures("notes")
def test_the_next_process_has_the_same_identity() -> None:
    first = mark("/a", "/b").identity()
    assert first.startswith(RealFiles().boot_id)
    assert mark("/b", "/a").identity() == first
    assert mark("/a").identity() != first


@pytest.mark.usefixtures("notes")
def test_the_identity_ends_with_the_first_error_that_may_drop_pages() -> None:
    found = mark("/data")
    first = found.identity()
    directory = log_dir(found)
    for harmless in (errno.ENOSPC, errno.EMFILE):
        directory.fail(OSError(harmless, "refused"), "a test")
        assert mark("/data").identity() == first
    directory.fail(OSError(errno.EIO, "input/output error"), "a test")
    second = mark("/data").identity()
    assert second != first
    directory.fail(OSError(errno.EIO, "input/output error"), "a test")
    assert mark("/data").identity() == second


def test_the_identity_ends_with_the_memory_of_the_machine(notes: Path) -> None:
    first = mark("/data").identity()
    for note in notes.iterdir():
        note.unlink()
    assert mark("/data").identity() != first


def test_an_empty_note_of_a_crash_is_replaced(notes: Path) -> None:
    mark("/data").identity()
    (note,) = notes.iterdir()
    note.write_text("", "ascii")
    assert mark("/data").identity() == mark("/data").identity() != ""


def test_a_note_of_another_user_is_not_read(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark("/data").identity()
    (note,) = notes.iterdir()
    assert RealFiles().boot_note(note.name)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert not RealFiles().boot_note(note.name)


def test_nothing_is_proven_without_such_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(real_files, "BOOT_NOTES", str(tmp_path / "missing"))
    assert not mark("/data").identity()
    assert "cannot write the boot note" in caplog.text


@pytest.mark.usefixtures("notes")
def test_nothing_is_proven_without_a_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealFiles, "boot_id", "")
    assert not mark("/data").identity()


def test_a_note_that_stays_is_reported(
    notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = mark("/data")
    found.identity()
    (note,) = notes.iterdir()
    monkeypatch.setattr(real_files, "BOOT_NOTES", str(note))  # no directory
    log_dir(found).fail(OSError("input/output error"), "a test")
    assert "cannot remove the boot note" in caplog.text
