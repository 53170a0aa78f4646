"""An adapted foreign file loads in LiteRT's CompiledModel, as on phones and in LiteRT.js, with the same results."""

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from dialects import BUILTIN, FOUR, Dialect, generated
from odt_sim import TrainableModel
from odt_sim.deploy.formats import FORMATS, inference_files
from odt_sim.device.engines.compiled import CompiledEngine
from odt_sim.device.engines.interpreter import InterpreterEngine
from odt_sim.device.examples import Examples
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ModelError
from odt_sim.model.contract.browsers import check_for_browsers
from odt_sim.model.editing.head_file import head_file
from odt_sim.model.editing.initial_weights import with_initial_weights
from odt_sim.model.editing.repeated import repeated
from odt_sim.model.editing.tree import packed, unpacked
from odt_sim.model.foreign.adaptation import adapted, tried
from odt_sim.model.foreign.joining import join
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.weights import Weights

FINITE = sorted({*BUILTIN} - {"not_a_number"})


def check_signatures(content: bytes, *, flex: bool = False) -> None:
    """Assert that each signature lists all inputs and outputs of its subgraph, and that CompiledModel loads the file."""
    graph = read_graph(content, "made")
    for name, entry in graph.signatures.items():
        subgraph = graph.subgraphs[entry.subgraph]
        assert sorted(entry.inputs.values()) == sorted(subgraph.inputs), name
        assert sorted(entry.outputs.values()) == sorted(subgraph.outputs), name
    if not flex:
        CompiledEngine(content, "made")


def batch(dialect: Dialect) -> tuple[NDArray[Any], NDArray[Any]]:
    return dialect.batch(rows=4)


@pytest.mark.parametrize("name", FINITE)
def test_adapted_file_trains_as_the_file_itself(name: str) -> None:
    dialect = generated(name)
    content = TrainableModel.load(dialect.path).content
    check_signatures(content)
    own, x_y = dialect.signatures["train"], batch(dialect)
    step = Interpreter(model_content=dialect.content, num_threads=1).get_signature_runner(own["name"])
    engine = CompiledEngine(content, name)
    for _ in range(3):
        expected = step(**{own["x"]: x_y[0], own["y"]: x_y[1]})[own["loss"]]
        np.testing.assert_allclose(engine.call("train", x=x_y[0], y=x_y[1])["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize(("name", "count", "average"), [("counted", "s1", "s0"), ("counted_closed", "s0", "s1")])
def test_count_of_steps_passes_as_int32(name: str, count: str, average: str) -> None:
    """The file's own state signatures keep their order; added signatures have the order of the step."""
    dialect = generated(name)
    model = TrainableModel.load(dialect.path)
    assert {slot.name: (slot.shape, slot.dtype) for slot in model.slots} == {
        count: ((), "int32"),
        average: ((), "float32"),
    }
    check_for_browsers(model)
    x, y = batch(dialect)
    for engine in (CompiledEngine(model.content, name), InterpreterEngine(model.content, name)):
        engine.call("restore_optimizer_state", **{count: np.int32(7), average: np.float32(0.25)})
        losses = [engine.call("train", x=x, y=y)["loss"] for _ in range(2)]
        found = engine.call("optimizer_state")
        assert found[count] == 9
        assert found[average] == pytest.approx(0.75 * (0.75 * 0.25 + 0.25 * losses[0]) + 0.25 * losses[1], rel=1e-6)


@pytest.mark.parametrize("name", FINITE)
def test_deployed_files_load(name: str) -> None:
    dialect = generated(name)
    model = TrainableModel.load(dialect.path)
    weights = Weights(model.layout, np.full(model.layout.size, 0.5, np.float32))
    deployed = TrainableModel.from_content(with_initial_weights(model.content, weights, name), where=name)
    check_signatures(deployed.content)
    x, y = batch(dialect)
    expected = CompiledEngine(deployed.content, name).call("infer", x=x)
    for format, content in inference_files(deployed, FORMATS, Examples(x, y)).items():
        check_signatures(content)
        found = CompiledEngine(content, name).call("infer", x=x)
        assert found.keys() == expected.keys()
        for output, values in found.items():
            np.testing.assert_allclose(values, expected[output], atol=0.1 if format == "int8" else 1e-2)


def test_file_of_several_steps_loads() -> None:
    model = TrainableModel.load(generated("counted").path)
    steps = repeated(model)
    assert steps.several
    check_signatures(steps.content)
    x, y = batch(generated("counted"))
    one, other = CompiledEngine(model.content, "one"), CompiledEngine(steps.content, "other")
    expected = [one.call("train", x=x, y=y)["loss"] for _ in range(2)]
    rows, positions = np.concatenate([x, x]), np.tile(np.arange(len(x), dtype=np.int32), (2, 1))
    found = other.call("train_2_times", x=rows, positions=positions, y=np.stack([y, y]))["loss"]
    np.testing.assert_allclose(found.ravel(), np.ravel(expected), rtol=1e-6)


def test_joined_file_loads() -> None:
    check_signatures(join(*(generated(name).path for name in (*FOUR[1:], FOUR[0]))))


def test_file_of_the_head_loads(grouped: TrainableModel) -> None:
    made = head_file(grouped)
    assert made is not None
    check_signatures(made.content)


def test_step_behind_a_feature_extraction_lists_what_its_subgraph_has() -> None:
    check_signatures(TrainableModel.load(generated("load_embeds").path, flex=True).content, flex=True)


def renamed(content: bytes, signature: str, outputs: dict[str, str]) -> bytes:
    """Return a file with other names of a signature's outputs."""
    model = unpacked(content)
    [declared] = [each for each in model.signatureDefs if each.signatureKey == signature.encode()]
    for entry in declared.outputs:
        entry.name = outputs.get(entry.name.decode(), entry.name.decode())
    return packed(model)


def test_output_in_the_way_of_a_canonical_name_is_left_out() -> None:
    content = renamed(generated("counted").content, "learn", {"accuracy": "loss", "loss": "objective"})
    corrections = {"train": {"name": "learn", "loss": "objective"}}
    made = tried(content, "renamed", signatures=corrections).content
    check_signatures(made)
    x, y = batch(generated("counted"))
    first = np.log(3) + 1  # an accuracy is smaller than the loss of untrained weights
    assert 0.5 < CompiledEngine(made, "renamed").call("train", x=x, y=y)["loss"] < first


def test_inference_that_takes_more_than_x_is_refused() -> None:
    content, corrections = generated("counted").content, {"infer": {"name": "learn", "x": "image"}}
    expected = (
        r"^mine: model.signatures.infer: 'learn' takes several inputs \(image, label\), expected one; name another"
    )
    with pytest.raises(ModelError, match=expected):
        adapted(content, "mine", signatures=corrections)


def test_state_that_int32_lacks_keeps_its_type() -> None:
    model = unpacked(generated("counted_closed").content)
    for tensor in (t for each in model.subgraphs for t in each.tensors if t.type == schema.TensorType.INT64):
        data = model.buffers[tensor.buffer].data
        if data is not None and not np.any(data):  # the count's initial value
            model.buffers[tensor.buffer].data = np.frombuffer(np.int64(1 << 40).tobytes(), np.uint8)
    found = Runtime(TrainableModel.from_content(adapted(packed(model), "mine").content)).read_slots()
    assert (found[0].dtype, int(found[0])) == ("int64", 1 << 40)
