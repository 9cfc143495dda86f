"""The program that compares fetches from a small and a large partition in pairs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.scaling import FETCH_BYTES
from benchmarks.scaling_pairs import SendfileClient, Series, lines_of


def test_sendfile_client_can_fetch_each_piece_of_the_full_segments(tmp_path: Path) -> None:
    for number, pieces in enumerate((3, 4, 1)):
        (tmp_path / f"{number}.log").write_bytes(bytes([number]) * (pieces * FETCH_BYTES + 5))
    client = SendfileClient(tmp_path)
    try:
        assert (client.files, client.pieces_a_file) == (2, 3)
        assert [client.fetch(piece)[-FETCH_BYTES:] for piece in range(6)] == [
            bytes([number]) * FETCH_BYTES for number in (0, 0, 0, 1, 1, 1)
        ]
    finally:
        client.close()
    assert client.process.returncode == 0


def test_table_has_the_median_of_the_ratios_of_the_pairs() -> None:
    small = Series("small", 1, cpu_us=[100.0, 50.0, 100.0], disk_bytes=[0, 0, 0])
    large = Series("large", 1, cpu_us=[110.0, 60.0, 200.0], disk_bytes=[1000, 0, 2000])
    assert lines_of([(small, large)])[2:4] == [
        "| small | 100 | 50 to 100 | 0 |  |  |",
        "| large | 110 | 60 to 200 | 3,000 | 1.2 | 1.15 to 1.60 |",
    ]
