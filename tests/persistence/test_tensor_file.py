"""Tensor files return what was written and detect any damage."""

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from odt_sim.errors import CheckpointError, VersionError
from odt_sim.persistence.tensor_file import packed, unpacked

TENSORS = {"dense/bias": np.array([1.5, -2.0], np.float32), "versions": np.arange(3)}
TEXTS = {"fingerprint": "ab", "weights": '{"own": ["dense/bias"]}'}


@pytest.fixture(scope="module")
def content():
    return packed(TENSORS, TEXTS)


def test_tensors_are_in_the_order_of_their_names():
    found, _ = unpacked(packed({name: np.zeros(1) for name in "hcbgadfe"}, TEXTS), "file")
    assert list(found) == sorted(found)


def assert_round_trip(tensors):
    found, texts = unpacked(packed(tensors, TEXTS), "file")
    assert texts == TEXTS
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        np.testing.assert_array_equal(found[name], tensor)


def refusal(content):
    with pytest.raises(CheckpointError) as caught:
        unpacked(content, "file")
    assert str(caught.value).startswith("file: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


NAMES = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != "__metadata__")
ARRAYS = arrays.arrays(
    st.sampled_from([np.bool_, np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(st.dictionaries(NAMES, ARRAYS, max_size=4))
def test_written_tensors_are_read_back(tensors):
    assert_round_trip(tensors)


def test_memory_layout_does_not_matter():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert_round_trip({"column": table[:, 1], "transposed": table.T, "broadcast": np.broadcast_to(table[0], (2, 3))})
    found, _ = unpacked(packed({"big-endian": table.astype(">f4")}, {}), "file")
    assert found["big-endian"].tobytes() == table.tobytes()


def test_equal_content_gives_equal_bytes(content):
    assert packed(dict(reversed(TENSORS.items())), dict(reversed(TEXTS.items()))) == content


def test_files_are_safetensors(content):
    found = safetensors.numpy.load(content)
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in TENSORS.items()}


def test_every_truncation_is_detected(content):
    for length in range(len(content)):
        assert "damaged" in refusal(content[:length])
    assert "damaged" in refusal(content + b"\0")


def test_every_flipped_bit_is_detected(content):
    for place in range(len(content)):
        damaged = bytearray(content)
        for bit in range(8):
            damaged[place] ^= 1 << bit
            assert "damaged" in refusal(bytes(damaged))
            damaged[place] ^= 1 << bit


@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", safetensors.numpy.save(TENSORS)], ids=["empty", "text", "another tool"]
)
def test_files_of_other_origin_are_refused(content):
    assert refusal(content).startswith("file: damaged or not a checkpoint (")


def test_types_that_cannot_be_stored_are_refused():
    for dtype in (np.complex128, np.str_, object):
        with pytest.raises(
            CheckpointError, match=r"^z: cannot store .*; use bool, or integers or floats of at most 64"
        ):
            packed({"z": np.zeros(2, dtype)}, {})


def test_another_version_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr("odt_sim.persistence.tensor_file.FORMAT_VERSION", "3")
    content = packed(TENSORS, TEXTS)
    monkeypatch.undo()
    with pytest.raises(VersionError, match=r"^file: format version 3, but this odt_sim reads 4; use the version"):
        unpacked(content, "file")
