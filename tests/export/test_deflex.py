"""Files with Flex ops, rewritten with TensorFlow 2.20 or later, which cannot run them itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from dialects import Dialect, generated

from odt_sim import TrainableModel
from odt_sim.cli.main import main
from odt_sim.errors import ExportError
from odt_sim.export import deflex
from odt_sim.model.reading.graph_reader import read_graph


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
    assert model.loss == "categorical_crossentropy"
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
    assert capsys.readouterr().err == (f"error: {rewritten}: already exists; choose another name, or remove it first\n")
    assert rewritten.read_bytes() == content
    output = rewritten.with_name("other.tflite")
    assert main(["deflex", str(source), str(output), "--batch-size", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("infer: no Flex ops; 14 ops, now ")
    assert lines[1] == "restore: 4 FlexEnsureShape, 4 FlexRestore; 17 ops, replaced"
    assert lines[3].startswith("train: 1 FlexReluGrad; ")
    assert lines[4] == "new signatures: parameters, restore"
    assert lines[5] == f"{output}: {output.stat().st_size:,} bytes, was {source.stat().st_size:,}"
    assert TrainableModel.load(output).batch_size == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("numbered", "has no Flex ops, so there is nothing to rewrite; to check whether it trains, run odt-sim doctor"),
        ("four_files_optimizer", "has no signatures, so its inputs have no names; convert the model with signatures"),
    ],
)
def test_file_with_nothing_to_rewrite_is_refused(name: str, message: str, tmp_path: Path) -> None:
    path = generated(name).path
    with pytest.raises(Exception, match=message):
        deflex(path, tmp_path / "out.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_names_of_the_file_stay_and_are_found(tmp_path: Path) -> None:
    dialect = generated("load_restores")
    path = deflex(dialect.path, tmp_path / "out.tflite")
    assert list(read_graph(path.read_bytes(), "out").signatures["train"].inputs) == ["data", "target"]
    model = TrainableModel.load(path)
    assert (model.loss, [p.name for p in model.parameters]) == ("categorical_crossentropy", list(dialect.weights))


@pytest.mark.slow
def test_feature_extraction_called_load_stays(tmp_path: Path) -> None:
    dialect = generated("load_embeds")
    path = deflex(dialect.path, tmp_path / "out.tflite")
    graph = read_graph(path.read_bytes(), "out")
    assert list(graph.signatures) == ["infer", "load", "parameters", "restore", "train"]
    assert "embed" in TrainableModel.load(path).signatures
    assert list(graph.signatures["restore"].inputs) == ["a0", "a1"]  # the converter froze the body


@pytest.mark.slow
@pytest.mark.parametrize("network", ["convolution", "normalized", "lstm", "lstm_over_dense", "gru_over_dense"])
def test_ten_steps_agree_with_tensorflow(network: str, tmp_path: Path) -> None:
    from dialects.classic import batches, classic

    model = classic(network)
    path = deflex(model.write(tmp_path / "classic.tflite", None), tmp_path / "builtin.tflite", batch_size=4)
    lite = Interpreter(str(path), num_threads=1).get_signature_runner
    before = [v.numpy() for v in model.trained]
    for x, y in batches(model, 4, 10):
        assert lite("train")(x=x, y=y)["loss"] == pytest.approx(float(model.train(x, y)["loss"]), rel=1e-5)
    moved = max(np.abs(v.numpy() - old).max() for v, old in zip(model.trained, before, strict=True))
    found = lite("parameters")()
    for i, v in enumerate(model.trained):
        np.testing.assert_allclose(found[f"a{i}"], v.numpy(), rtol=0, atol=1e-5 * moved, err_msg=v.name)


@pytest.mark.slow
def test_random_op_of_litert_becomes_one_with_a_state(tmp_path: Path) -> None:
    from dialects.classic import batches, classic

    model = classic("dropout")
    path = deflex(model.write(tmp_path / "classic.tflite", 4), tmp_path / "builtin.tflite")
    assert TrainableModel.load(path).random_states == (0,)
    ((x, y),) = batches(model, 4, 1)

    def losses(seed: int) -> list[float]:
        call = Interpreter(str(path), num_threads=1).get_signature_runner
        call("restore_optimizer_state")(s0=np.array([seed, 0], np.int32))
        start = call("parameters")()
        found = []
        for _ in range(50):
            call("restore")(**start)
            found.append(float(call("train")(x=x, y=y)["loss"]))
        return found

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)
    assert len(set(losses(1))) == 50  # a mask for each step
    expected = [float(model.loss(x, y)[0]) for _ in range(300)]
    assert np.mean(losses(1)) == pytest.approx(np.mean(expected), abs=4 * np.std(expected) / np.sqrt(50))


class Odd:
    """Writes models that are odd in one way."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "odd.tflite"

    def write(self, step: Callable[..., Any] | None = None, owner: Any = None, **signatures: Any) -> Path:
        """Write a perceptron, its step replaced by `step(model, x, y)`."""
        from dialects.models import Taped, convert, function, infer, of_x, of_y, train

        model = Taped()
        taken = (lambda x, y: {"loss": step(model, x, y)}) if step else train(model)
        given = {"train": function(taken, x=of_x(), y=of_y()), "infer": function(infer(model), x=of_x())}
        model.owner = owner
        convert(model, {**given, **signatures}, self.path, flex=True)
        return self.path


@pytest.mark.slow
def test_op_that_cannot_be_rewritten_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tensorflow as tf

    source = Odd(tmp_path).write(lambda model, x, y: model.step(tf.math.cumprod(x), y))
    assert main(["deflex", str(source), str(tmp_path / "out.tflite")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {source}: `train`: ")
    assert "the op Cumprod multiplies across the rows of the batch; give a batch size" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.tflite").exists()


@pytest.mark.slow
def test_variables_without_initial_values(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf
    from dialects.models import function

    keras.utils.set_random_seed(0)
    rate = keras.Variable(0.25, name="rate")  # the converter leaves out what Keras initializes

    def step(model: Any, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return model.step(rate.value * x, y)

    with pytest.raises(ExportError, match=r"the variable 'rate' is read but never set first \(1 in total\)"):
        deflex(Odd(tmp_path).write(step, rate), tmp_path / "out.tflite")

    def initialize() -> dict[str, tf.Tensor]:
        rate.value.assign(0.5)
        return {"done": tf.constant(1)}

    source = Odd(tmp_path).write(step, rate, initialize=function(initialize))
    lite = Interpreter(str(deflex(source, tmp_path / "out.tflite")), num_threads=1).get_signature_runner
    x, y = generated("numbered").batch()
    expected = Interpreter(str(generated("numbered").path), num_threads=1).get_signature_runner("train")(x=x / 2, y=y)
    assert lite("train")(x=x, y=y)["loss"] == pytest.approx(expected["loss"], rel=1e-6)


@pytest.mark.slow
def test_sharded_checkpoint_gives_way_to_parameters(tmp_path: Path) -> None:
    import tensorflow as tf
    from dialects.models import function, spec

    raw, kernel = tf.raw_ops, tf.Variable(np.ones((6, 3), np.float32), name="kernel")
    form = {"tensor_names": ["kernel"], "shape_and_slices": [""]}

    def save(path: tf.Tensor) -> dict[str, tf.Tensor]:
        shard = raw.ShardedFilename(basename=path, shard=0, num_shards=1)
        raw.SaveV2(prefix=shard, tensors=[kernel.read_value()], **form)
        raw.MergeV2Checkpoints(checkpoint_prefixes=[shard], destination_prefix=path)
        return {"path": path}

    def load(path: tf.Tensor) -> dict[str, tf.Tensor]:
        (value,) = raw.RestoreV2(prefix=path, dtypes=[tf.float32], **form)
        kernel.assign(tf.ensure_shape(value, [6, 3]))
        return {"kernel": value}

    path = spec([], tf.string)
    files = {"save": function(save, path=path), "load": function(load, path=path)}
    infer = function(lambda x: {"y": tf.matmul(x, kernel)}, x=spec([4, 6]))
    source = Odd(tmp_path).write(None, kernel, **files, infer=infer)
    lite = Interpreter(str(deflex(source, tmp_path / "out.tflite")), num_threads=1)
    assert lite.get_signature_list()["parameters"] == {"inputs": [], "outputs": ["a0"]}
    assert lite.get_signature_list().keys().isdisjoint(files)
    lite.get_signature_runner("restore")(a0=np.full((6, 3), 2, np.float32))
    np.testing.assert_array_equal(lite.get_signature_runner("parameters")()["a0"], np.full((6, 3), 2))
    outputs = lite.get_signature_runner("infer")(x=np.ones((4, 6), np.float32))
    np.testing.assert_array_equal(outputs["y"], np.full((4, 3), 12))


def test_added_restore_takes_what_the_own_parameters_return(tmp_path: Path) -> None:
    from dialects.models import Taped, convert, function, infer, of_x, of_y, reads, train

    model, path = Taped(), tmp_path / "flex.tflite"
    signatures = {"train": function(train(model), x=of_x(), y=of_y()), "infer": function(infer(model), x=of_x())}
    convert(model, {**signatures, "parameters": function(reads(model, lambda i: f"p{3 - i}"))}, path, flex=True)
    call = Interpreter(str(deflex(path, tmp_path / "out.tflite")), num_threads=1).get_signature_runner
    changed = {name: value + 1 for name, value in call("parameters")().items()}
    call("restore")(**changed)
    np.testing.assert_equal(call("parameters")(), changed)


def test_command_warns_of_a_lost_activation(tmp_path: Path) -> None:
    import tensorflow as tf
    from dialects.models import function, spec

    kernel = tf.Variable(np.ones((6, 3), np.float32), name="kernel")

    def load(path: tf.Tensor) -> dict[str, tf.Tensor]:
        (value,) = tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=["kernel"], shape_and_slices=[""], dtypes=[tf.float32]
        )
        kernel.assign(tf.ensure_shape(value, [6, 3]))
        return {"kernel": value}

    infer = function(lambda x: {"y": tf.exp(tf.nn.relu(tf.matmul(x, kernel)))}, x=spec([4, 6]))
    source = Odd(tmp_path).write(None, kernel, load=function(load, path=spec([], tf.string)), infer=infer)
    output = tmp_path / "out.tflite"
    with pytest.warns(UserWarning, match=rf"{source}: an activation was lost in infer .*; see D205 in: odt-sim doctor"):
        assert main(["deflex", str(source), str(output)]) == 0
    assert output.is_file()
