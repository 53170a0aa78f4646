"""Files with Flex ops, rewritten with TensorFlow 2.20 or later, which cannot run them itself."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from dialects import Dialect, generated

from odt_sim import TrainableModel
from odt_sim.cli.main import main
from odt_sim.export import deflex
from odt_sim.model.graph_reader import read_graph


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a rewritten classic file, by the command."""
    path = tmp_path_factory.mktemp("deflex") / "classic.tflite"
    assert main(["deflex", str(generated("checkpoint_vector").path), str(path)]) == 0
    return path


def same_steps(found: Path, expected: Dialect, steps: int = 10) -> None:
    """Assert that two files that hold the same perceptron train alike."""
    one, other = (Interpreter(str(path), num_threads=1).get_signature_runner for path in (found, expected.path))
    before = other("parameters")()
    for seed in range(steps):
        x, y = expected.batch(seed)
        assert one("train")(x=x, y=y)["loss"] == pytest.approx(other("train")(x=x, y=y)["loss"], rel=1e-5)
    moved = max(np.abs(value - before[name]).max() for name, value in other("parameters")().items())
    for name, value in other("parameters")().items():
        np.testing.assert_allclose(one("parameters")()[name], value, rtol=0, atol=1e-5 * moved, err_msg=name)


def test_rewritten_file_trains_as_the_model_with_a_gradient_by_hand(rewritten: Path) -> None:
    same_steps(rewritten, generated("numbered"))


def test_rewritten_file_is_a_trainable_model_with_names(rewritten: Path) -> None:
    model = TrainableModel.load(rewritten)
    assert [p.name for p in model.parameters] == list(generated("checkpoint_vector").weights)
    assert [p.group for p in model.parameters] == ["body", "body", "head", "head"]
    assert model.signatures.keys() == {"train", "infer", "parameters", "restore"}
    values = Interpreter(str(rewritten), num_threads=1).get_signature_runner
    changed = {name: value + 1 for name, value in values("parameters")().items()}
    values("restore")(**changed)
    np.testing.assert_array_equal(values("parameters")()["a2"], changed["a2"])


@pytest.mark.slow
def test_command_lists_what_changed_and_keeps_the_output(rewritten: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = generated("checkpoint_scalar").path
    content = rewritten.read_bytes()
    assert main(["deflex", str(source), str(rewritten)]) == 1
    assert capsys.readouterr().err == (f"error: {rewritten}: exists already; give another name, or remove it first\n")
    assert rewritten.read_bytes() == content
    output = rewritten.with_name("other.tflite")
    assert main(["deflex", str(source), str(output), "--batch-size", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("infer: no Flex ops; 14 ops, now ")
    assert lines[1] == "restore: 4 FlexEnsureShape, 4 FlexRestore; 17 ops, now replaced"
    assert lines[3].startswith("train: 1 FlexReluGrad; ")
    assert lines[4] == "new signatures: parameters, restore"
    assert lines[5] == f"{output}: {output.stat().st_size:,} bytes, was {source.stat().st_size:,}"
    assert TrainableModel.load(output).batch_size == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("numbered", "has no Flex ops, so there is nothing to rewrite; odt-sim doctor says if it trains"),
        ("four_files_optimizer", "has no signatures, so nothing names its inputs; convert the model with signatures"),
    ],
)
def test_file_with_nothing_to_rewrite_is_refused(name: str, message: str, tmp_path: Path) -> None:
    path = generated(name).path
    with pytest.raises(Exception, match=message):
        deflex(path, tmp_path / "out.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_feature_extraction_called_load_stays(tmp_path: Path) -> None:
    dialect = generated("load_embeds")
    path = deflex(dialect.path, tmp_path / "out.tflite")
    graph = read_graph(path.read_bytes(), "out")
    assert list(graph.signatures) == ["infer", "load", "parameters", "restore", "train"]
    assert list(graph.signatures["restore"].inputs) == ["a0", "a1"]  # the converter froze the body
