"""Compilation of the codec of a version on its first use."""

from __future__ import annotations

import pytest

from odradek.protocol import codec
from odradek.protocol.codec import decoding, encode, encoding
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.wire import Chunk

MESSAGE = MetadataResponse(cluster_id="c")


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_functions", {})


def test_first_use_of_an_encoder_compiles_it_in_time_slices_of_its_own() -> None:
    chunks: list[Chunk] = []
    slices = [len(chunks) for _ in encoding(MetadataResponse, 12, MESSAGE, chunks.append)]
    assert slices == [0, 0, 0]
    assert b"".join(chunks) == encode(MESSAGE, 12)  # type: ignore[arg-type]
    assert not list(encoding(MetadataResponse, 12, MESSAGE, chunks.append))


def test_first_use_of_a_decoder_compiles_it_in_time_slices_of_its_own() -> None:
    view = memoryview(encode(MESSAGE, 12))
    work = decoding(MetadataResponse, 12, view, 0)
    for _ in range(3):
        next(work)
    with pytest.raises(StopIteration) as ended:
        next(work)
    assert ended.value.value == (MESSAGE, len(view))
    assert not list(decoding(MetadataResponse, 12, view, 0))
