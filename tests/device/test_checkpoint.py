"""Checkpoint files: whole or not at all, and any damage is told."""

import errno
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from odt_sim.device.checkpoint import read_tensors, write_tensors
from odt_sim.errors import CheckpointError, FileError

TENSORS: dict[str, NDArray[Any]] = {"dense/bias": np.array([1.5, -2.0], np.float32), "versions": np.arange(3)}
TEXTS = {"fingerprint": "ab", "weights": '{"own": ["dense/bias"]}'}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "state.safetensors"
    write_tensors(path, TENSORS, TEXTS)
    return path


def assert_holds(path: Path, tensors: Mapping[str, NDArray[Any]] = TENSORS) -> None:
    found, texts = read_tensors(path)
    assert texts == TEXTS
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        np.testing.assert_array_equal(found[name], tensor)


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_tensors(path)
    return str(caught.value)


def test_tensors_may_lie_in_memory_as_they_like(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    tensors = {
        "column": table[:, 1],
        "turned": table.T,
        "one": np.broadcast_to(np.float32(2), (5,)),
        "back": table[::-1],
    }
    write_tensors(tmp_path / "state.safetensors", tensors, TEXTS)
    assert_holds(tmp_path / "state.safetensors", tensors)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda name: name != "__metadata__"),
        arrays.arrays(
            st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8]),
            arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=4,
    )
)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, NDArray[Any]]) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.safetensors"
    write_tensors(path, tensors, TEXTS)
    assert_holds(path, tensors)


def test_views_and_transposes_are_written_as_they_look(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors = {"transposed": matrix.T, "strided": matrix[:, ::2]}
    write_tensors(tmp_path / "v", tensors, TEXTS)
    assert_holds(tmp_path / "v", tensors)


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "000" / "1" / "state.safetensors"
    write_tensors(path, TENSORS, TEXTS)
    write_tensors(path, TENSORS, TEXTS)
    assert list(tmp_path.rglob("*.safetensors")) == [path]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_every_truncation_is_damage(written: Path) -> None:
    content = written.read_bytes()
    for length in range(len(content)):
        written.write_bytes(content[:length])
        assert "damaged" in refusal(written)
    written.write_bytes(content + b"\0")
    assert "damaged" in refusal(written)


def test_every_flipped_bit_is_damage(written: Path) -> None:
    content = written.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            written.write_bytes(damaged)
            message = refusal(written)
            assert message.startswith(str(written))
            assert "\n" not in message


def test_other_white_space_in_the_padding_is_damage(tmp_path: Path) -> None:
    for length in range(8):  # one of these makes safetensors pad
        path = tmp_path / f"{length}.safetensors"
        write_tensors(path, TENSORS, {**TEXTS, "fingerprint": "a" * length})
        content = path.read_bytes()
        if b"} " in content:
            path.write_bytes(content.replace(b"} ", b"}\n"))
            assert "damaged" in refusal(path)
            return
    pytest.fail("no header was padded")


def test_another_value_of_the_same_form_is_damage(written: Path) -> None:
    found, texts = read_tensors(written)
    with safetensors.safe_open(written, framework="numpy") as file:
        checksum = file.metadata()["checksum"]
    found["dense/bias"][0] = 2.5
    content = safetensors.numpy.save(found, {**texts, "format_version": "3", "checksum": checksum})
    written.write_bytes(content)
    assert "its checksum does not fit its content; put back a whole copy if there is one" in refusal(written)


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_tensors(tmp_path / name, TENSORS, TEXTS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_what_is_written_is_safetensors(written: Path) -> None:
    found = safetensors.numpy.load_file(written)
    assert {name: array.tobytes() for name, array in found.items()} == {n: a.tobytes() for n, a in TENSORS.items()}
    with safetensors.safe_open(written, framework="numpy") as file:
        assert TEXTS.items() <= file.metadata().items()


def test_an_array_that_no_file_can_hold(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^z: a tensor of complex128 cannot be kept; make it one of F64, "):
        write_tensors(tmp_path / "complex", {"z": np.zeros(2, complex)}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_tool(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file(TENSORS, path)
    assert "damaged" in refusal(path)
    (tmp_path / "text").write_text("not a checkpoint")
    assert "damaged or no checkpoint" in refusal(tmp_path / "text")


@pytest.mark.parametrize("version", ["2", "4"])
def test_another_version(tmp_path: Path, version: str) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file(TENSORS, path, {"format_version": version, "checksum": "of a kind unknown here"})
    assert refusal(path) == f"{path}: format version {version}, this odt_sim reads 3; use the odt_sim that wrote it"


def test_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such checkpoint; put it back if there is a copy"
    assert "damaged or no checkpoint" in refusal(tmp_path)


def test_a_folder_without_room_leaves_the_old_file(written: Path) -> None:
    """A limit on the size of files is what a full disk is: the write fails half-way."""
    limited = (
        "import resource, signal, sys, pathlib, numpy as np\n"
        "from odt_sim.device.checkpoint import write_tensors\n"
        "from odt_sim.errors import FileError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_tensors(pathlib.Path(sys.argv[1]), {'large': np.zeros(10_000)}, {})\n"
        "except FileError as error:\n"
        "    print(error)\n"
    )
    child = subprocess.run([sys.executable, "-c", limited, written], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == (
        f"{written}: cannot write it ({os.strerror(errno.EFBIG)}); make room there or choose another place"
    )
    assert_holds(written)
    assert [p.name for p in written.parent.iterdir()] == [written.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_leaves_the_old_file(written: Path) -> None:
    written.parent.chmod(0o500)
    try:
        with pytest.raises(FileError, match=r"cannot write it \(Permission denied\)"):
            write_tensors(written, {"other": np.zeros(3)}, {})
    finally:
        written.parent.chmod(0o700)
    assert_holds(written)
