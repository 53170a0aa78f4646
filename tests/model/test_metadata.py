"""Adding metadata to `.tflite` files."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from hypothesis import given
from hypothesis import strategies as st

from odt_sim.model.editing.metadata import with_metadata
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.reading.flatbuffer import read


def test_metadata_is_added_and_replaced(plain: bytes) -> None:
    before = read(plain, "plain")
    once = with_metadata(plain, "note", b"first")
    other = with_metadata(once, "other", b"\x00" * 1000)
    twice = with_metadata(other, "note", b"second")
    assert read(once, "once").metadata["note"] == b"first"
    assert read(twice, "twice").metadata == {**before.metadata, "note": b"second", "other": b"\x00" * 1000}
    assert read(twice, "twice").signatures == before.signatures
    assert read(twice, "twice").operators == before.operators


@pytest.mark.slow
@given(name=st.text(max_size=40), data=st.binary(max_size=100))
def test_all_else_stays(plain: bytes, name: str, data: bytes) -> None:
    before, after = unpacked(plain), unpacked(with_metadata(plain, name, data))
    *entries, entry = after.metadata
    assert (entry.name.decode(), entry.buffer) == (name, len(before.buffers))
    added = after.buffers.pop().data
    assert (b"" if added is None else bytes(added)) == data
    after.metadata = before.metadata
    assert len(entries) == len(before.metadata or [])
    same = packed(after) == packed(before)
    assert same


def test_a_file_without_metadata_gets_its_first_entry(plain: bytes) -> None:
    model = unpacked(plain)
    model.metadata = None
    assert read(with_metadata(packed(model), "note", b"text"), "first").metadata == {"note": b"text"}


def test_data_of_buffers_stay_aligned(plain: bytes) -> None:
    for size in range(20):
        content = with_metadata(plain, "n" * size, b"mark" + bytes(size))
        assert content.index(b"mark") % 16 == 0
        assert (len(content) - len(plain)) % 16 == 0


def test_metadata_does_not_change_the_results(plain: bytes) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(4, 6)).astype(np.float32), np.array([0, 2, 1, 1], np.int32)
    results = []
    for content in (plain, with_metadata(plain, "note", b"text")):
        interpreter = Interpreter(model_content=content)
        loss = interpreter.get_signature_runner("train")(x=x, y=y)["loss"]
        results.append((loss, *interpreter.get_signature_runner("parameters")().values()))
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)
    assert results[0][0] == pytest.approx(np.log(3), abs=0.3)
