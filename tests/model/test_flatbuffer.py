"""Reading declarations of whole and damaged `.tflite` files."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from hypothesis import given
from hypothesis import strategies as st

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.model.reading import graph_reader
from odt_sim.model.reading.flatbuffer import TensorInfo, fingerprint, read


@pytest.fixture(scope="module")
def dynamic(foreign: Path) -> bytes:
    return (foreign / "dynamic.tflite").read_bytes()


def test_signatures_are_read(plain: bytes, dynamic: bytes) -> None:
    signatures = read(plain, "plain").signatures
    assert set(signatures) == {"train", "infer", "parameters", "restore"}
    assert signatures["train"].inputs == {"x": TensorInfo("x", (4, 6), "float32"), "y": TensorInfo("y", (4,), "int32")}
    assert signatures["train"].outputs == {"loss": TensorInfo("loss", (), "float32")}
    assert signatures["infer"].outputs == {"scores": TensorInfo("scores", (4, 3), "float32")}
    assert signatures["parameters"].inputs == {}
    assert read(dynamic, "dynamic").signatures["train"].inputs["x"].shape == (-1, 6)


def test_declarations_agree_with_litert(digits_cnn: TrainableModel) -> None:
    interpreter = Interpreter(model_content=digits_cnn.content)
    listed = interpreter.get_signature_list()
    assert set(listed) == set(digits_cnn.signatures)
    for name, signature in digits_cnn.signatures.items():
        runner = interpreter.get_signature_runner(name)
        for own, details in [
            (signature.inputs, runner.get_input_details()),
            (signature.outputs, runner.get_output_details()),
        ]:
            assert {t.name: (t.shape, t.dtype) for t in own.values()} == {
                key: (tuple(d["shape"]), np.dtype(d["dtype"]).name) for key, d in details.items()
            }


def test_operators_are_counted_by_signature(plain: bytes, foreign: Path) -> None:
    operators = read(plain, "plain").operators
    assert operators["parameters"] == {"CALL_ONCE": 1, "READ_VARIABLE": 2, "VAR_HANDLE": 2}
    assert operators["train"]["BATCH_MATMUL"] == 2
    assert operators["train"]["ASSIGN_VARIABLE"] == 2
    flex = read((foreign / "flex.tflite").read_bytes(), "flex").operators
    assert flex["train"]["FlexSoftplusGrad"] == 1
    assert "FlexSoftplusGrad" not in flex["infer"]


@pytest.mark.parametrize("content", [b"", b"TFL3", b"PK\x03\x04" * 10, b'{"signatures": {}}', bytes(64)])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"photo\.jpg: not a \.tflite file \(expected the identifier TFL3"):
        read(content, "photo.jpg")


def test_every_truncation_is_refused(plain: bytes) -> None:
    for length in [*range(0, 200), *range(200, len(plain) - 1, 101), len(plain) - 1]:
        with pytest.raises(ModelError, match="cut"):
            read(plain[:length], "cut")


@given(st.data())
def test_changed_bytes_are_read_or_refused_in_one_line(softmax: TrainableModel, data: st.DataObject) -> None:
    content = bytearray(softmax.content)
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    message = "odd: "
    try:
        TrainableModel.from_content(bytes(content), where="odd")
    except ModelError as error:
        message = str(error)
    assert message.startswith("odd: ")
    assert "\n" not in message
    assert len(message) < 1000


def test_fingerprint_is_sha256() -> None:
    assert fingerprint(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert graph_reader.IDENTIFIER == b"TFL3"
