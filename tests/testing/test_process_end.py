"""The imitated end of a process: files that take no changes, and links between brokers."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.environment.files import READ, READ_WRITE, write_file
from odradek.testing.process_end import EndableFiles, EndableNetwork, Links
from tests.net.support import on_both_loops, run

BROKERS = {1: 9001, 2: 9002, 3: 9003}


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(directory)): each.read_bytes() if each.is_file() else b"(directory)"
        for each in sorted(directory.rglob("*"))
    }


@pytest.mark.parametrize("portable", [False, True])
def test_files_take_no_changes_after_the_end(tmp_path: Path, *, portable: bool) -> None:
    files = EndableFiles(portable=portable)
    kept, other = str(tmp_path / "kept"), str(tmp_path / "other")
    write_file(files, kept, b"before", sync=True)
    files.mkdir(str(tmp_path / "directory"))
    fd = files.open(kept, READ_WRITE)
    before = contents(tmp_path)
    files.end()
    assert files.pwrite(fd, b"after", 0) == 5
    files.ftruncate(fd, 0)
    assert not files.allocate(fd, 0, 4096)
    files.fsync(fd)
    files.fsync_dir(str(tmp_path))
    files.sync(str(tmp_path))
    files.close(fd)
    write_file(files, other, b"after", sync=True)
    files.replace(kept, other)
    files.unlink(kept)
    files.mkdir(str(tmp_path / "another"))
    files.remove_tree(str(tmp_path / "directory"))
    files.close(files.open(str(tmp_path / "new"), READ_WRITE | os.O_TRUNC))
    files.close(files.open(kept, READ_WRITE | os.O_TRUNC))
    files.copy_modified(kept, other)
    assert contents(tmp_path) == before
    assert files.modified_ms(other) == 0


def test_files_are_read_after_the_end(tmp_path: Path) -> None:
    files = EndableFiles(portable=False)
    path = str(tmp_path / "kept")
    write_file(files, path, b"before", sync=False)
    files.end()
    fd = files.open(path, READ)
    assert files.pread(fd, 100, 0) == b"before"
    files.close(fd)


@given(separated=st.sets(st.sampled_from(sorted(BROKERS))))
def test_a_partition_separates_two_sides_and_nothing_else(separated: set[int]) -> None:
    links = Links()
    for broker, port in BROKERS.items():
        links.add(broker, port)
    links.separate(separated, from_clients=True)
    for one in BROKERS:
        for other, port in BROKERS.items():
            assert links.allows(one, port) == ((one in separated) == (other in separated))
        assert links.allows(one, 1), "a port of another program"
        assert links.accepts(one, 1) == (one not in separated), "a client"
    links.add_outgoing(5)
    assert all(links.accepts(each, 5) for each in BROKERS), "`allows` decides about brokers"
    links.remove_outgoing(5)
    links.separate((), from_clients=False)
    assert all(links.accepts(each, 5) for each in BROKERS)
    assert all(links.allows(one, port) for one in BROKERS for port in BROKERS.values())


class Aborting(asyncio.Protocol):
    """A protocol that ends its connection at once."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


@on_both_loops
def test_a_connection_that_ends_at_once_leaves_no_socket(loop: str) -> None:
    """A socket object that is not detached closes its descriptor again, which others may use."""

    async def connect(port: int) -> list[socket.socket]:
        network: Any = EndableNetwork(1, Links())
        await network.connect("127.0.0.1", port, Aborting)
        await asyncio.sleep(0)
        return [sock for *_, sock in network._outgoing]

    with socket.create_server(("127.0.0.1", 0)) as server:
        found = run(connect(server.getsockname()[1]), loop)
    assert [each.fileno() for each in found] == [-1]
