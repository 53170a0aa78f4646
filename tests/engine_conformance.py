"""The contract of `odt_sim.device.engines.Engine`: a class with an engine inherits these tests."""

import numpy as np
import pytest

from odt_sim import TrainableModel
from odt_sim.device.engines import Engine
from odt_sim.errors import ModelError


class EngineConformance:
    """Tests that every engine passes; the model takes batches of a fixed size."""

    @pytest.fixture
    def model(self, momentum: TrainableModel) -> TrainableModel:
        return momentum

    @pytest.fixture
    def engine(self, model: TrainableModel) -> Engine:
        raise NotImplementedError("return an engine of the model")

    @pytest.mark.parametrize("signature", ["train", "infer", "parameters", "optimizer_state"])
    def test_outputs_are_those_that_the_file_declares(
        self, engine: Engine, model: TrainableModel, signature: str
    ) -> None:
        if signature not in model.signatures:
            pytest.skip("a model without optimizer slots")
        declared = model.signatures[signature]
        inputs = {name: np.zeros(tensor.shape, tensor.dtype) for name, tensor in declared.inputs.items()}
        for _ in range(2):
            outputs = engine.call(signature, **inputs)
            found = {name: (np.shape(array), str(array.dtype)) for name, array in outputs.items()}
            assert found == {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in declared.outputs.items()}

    @pytest.mark.parametrize(
        ("write", "read"), [("restore", "parameters"), ("restore_optimizer_state", "optimizer_state")]
    )
    def test_written_variables_are_read_by_other_signatures(
        self, engine: Engine, model: TrainableModel, write: str, read: str
    ) -> None:
        if write not in model.signatures:
            pytest.skip("a model without optimizer slots")
        for value in (1, 2):
            written = {
                name: np.full(tensor.shape, value, tensor.dtype)
                for name, tensor in model.signatures[write].inputs.items()
            }
            engine.call(write, **written)
            for name, array in engine.call(read).items():
                np.testing.assert_array_equal(array, written[name])

    def test_outputs_do_not_change_by_later_calls(self, engine: Engine, model: TrainableModel) -> None:
        before = engine.call("parameters")
        copies = {name: array.copy() for name, array in before.items()}
        engine.call("restore", **{name: array + 1 for name, array in copies.items()})
        engine.call("parameters")
        for name, array in before.items():
            np.testing.assert_array_equal(array, copies[name])

    def test_weights_and_slots_change_by_training(self, engine: Engine, model: TrainableModel) -> None:
        before = engine.call("parameters")
        random, inputs = np.random.default_rng(0), {}
        for name, tensor in model.signatures["train"].inputs.items():
            integers = np.issubdtype(tensor.dtype, np.integer)
            values = random.integers(0, 2, tensor.shape) if integers else random.uniform(size=tensor.shape)
            inputs[name] = np.asarray(values, tensor.dtype)
        engine.call("train", **inputs)
        after = engine.call("parameters")
        assert any(not np.array_equal(before[name], after[name]) for name in before)

    def test_unknown_signature_is_refused(self, engine: Engine) -> None:
        with pytest.raises(ModelError):
            engine.call("unknown")

    def test_wrong_inputs_are_refused(self, engine: Engine, model: TrainableModel) -> None:
        x = np.zeros(model.x.shape, np.float32)
        for inputs in ({}, {"z": x}, {"x": x.astype(np.int64)}):
            with pytest.raises(ModelError):
                engine.call("infer", **inputs)
        assert engine.call("infer", x=x)
