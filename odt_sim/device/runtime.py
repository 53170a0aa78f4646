"""Typed access to a model's signatures, on any engine."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from odt_sim.data.store.columns import Array, Columns, Rows, only, prefixed, rows_of
from odt_sim.device.batches import Batch, StackedBatches, prepared
from odt_sim.device.engines import LITERT, StartEngine
from odt_sim.metrics.device import mean_loss
from odt_sim.model.editing.repeated import POSITIONS, ROWS, EngineFile, own_file, repeated_name
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights

NO_LOSS = "export its step with the output 'loss'"


def inputs_of(model: TrainableModel, signature: str, x: Rows) -> dict[str, Array]:
    """Return the inputs of `infer`, `embed` or `head_infer` by name; for `head_infer`, `x` contains embeddings."""
    return prefixed("x", x) if isinstance(x, Columns) else dict.fromkeys(model.signatures[signature].inputs, x)


class Runtime:
    """A single-threaded engine that runs a model or its head.

    Attributes:
        model: The model.
        file: The file that the engine runs, and the parameters and slots that it contains.
        engine: The engine.
        initial: All weights of a fresh engine, read-only.
        initial_slots: All of the optimizer's slots of a fresh engine.
    """

    def __init__(
        self,
        model: TrainableModel,
        start: StartEngine = LITERT,
        file: EngineFile | None = None,
        whole: "Runtime | None" = None,
    ) -> None:
        """Start an engine.

        Args:
            model: The model.
            start: Starts the engine, by default LiteRT's interpreter.
            file: The file to run; by default the model's own.
            whole: A runtime of the whole model, needed for the head's file, which has no initial values; else None.

        Raises:
            ModelError: The engine cannot load the model or cannot read its weights.
        """
        self.model, self.file = model, file or own_file(model)
        self.engine = start(self.file.content, model.where)
        self._offset: Weights | None = None
        self._weights: Weights | None = None  # the current weights, if known
        self._restore_names = [f"a{i}" for i in range(len(self.file.layout.parameters))]
        self._rows: dict[str, Array] = {}  # the rows of the last call of several steps, by signature
        self._slot_names = [f"s{i}" for i in range(len(self.file.slots))]
        if whole is None:
            outputs = self.engine.call("parameters")
            # Later reads skip this check of the shapes.
            self.initial = Weights.from_tensors(self.file.layout, [outputs[name] for name in self._restore_names])
            self.initial.vector.flags.writeable = False
            self._weights = self.initial
            self.initial_slots = self.read_slots()
        else:
            self.initial, self.initial_slots = whole.initial, whole.initial_slots
            self._set_offset(Weights.zeros(self.file.offset))
            self.write(self.initial)
            self.write_slots(self.initial_slots)

    def call(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature.

        Raises:
            ModelError: The inputs do not fit the signature.
            InvocationError: The engine failed.
        """
        return self.engine.call(signature, **inputs)

    def train(
        self,
        batches: Iterable[Batch],
        learning_rates: Iterable[float],
        signature: str = "train",
        b: Weights | None = None,
        mu: float = 0.0,
    ) -> list[float]:
        """Run a training step on each batch and return the losses.

        Args:
            batches: The rows of each step; `x` contains embeddings if the signature takes them.
            learning_rates: The step sizes.
            signature: The training signature.
            b: The gradient offset, for a model with `set_gradient_offset`; None for zero.
            mu: The factor of the proximal term.
        """
        self._write_offset(b)
        self._weights = None
        returns_loss = "loss" in self.model.signatures[signature].outputs
        rates = iter(learning_rates)
        losses: list[float] = []
        for group in prepared(batches):
            inputs = [self._inputs(batch, next(rates), signature, mu) for batch in group]
            for batch, values in zip(group, inputs, strict=True):
                if returns_loss:
                    losses.append(float(self.engine.call(signature, **values)["loss"].item()))
                else:
                    # Before the step, for a foreign file whose step returns no loss.
                    outputs, y = (
                        only(rows[: batch.examples], self.model.where, NO_LOSS)
                        for rows in (self.infer(batch.x), batch.y)
                    )
                    losses.append(mean_loss(self.model.outputs[0], outputs, y))
                    self.engine.call(signature, **values)
        return losses

    def steps_at_once(self, signature: str) -> tuple[int, ...]:
        """Return the step counts that `train_at_once` supports, the largest first; none if steps run one by one."""
        return self.file.several.get(signature, ())

    def train_at_once(
        self,
        batches: StackedBatches,
        learning_rates: Sequence[float],
        signature: str = "train",
        b: Weights | None = None,
        mu: float = 0.0,
    ) -> list[float]:
        """Run as many steps as one of `steps_at_once` in one call and return their losses; see `train`."""
        self._write_offset(b)
        self._weights = None
        steps = len(learning_rates)
        values = {
            "y": batches.y,
            "sample_weight": batches.sample_weight,
            "learning_rate": learning_rates,
            "mu": [mu] * steps,
        }
        declared, several = self.model.signatures[signature].inputs, repeated_name(signature, steps)
        inputs = {name: np.asarray(values[name], tensor.dtype) for name, tensor in declared.items() if name in values}
        [name] = declared.keys() & ROWS
        inputs |= {name: self._padded(several, batches, declared[name].dtype), POSITIONS: batches.positions}
        losses: list[float] = self.engine.call(several, **inputs)["loss"].reshape(-1).tolist()
        return losses

    def _padded(self, signature: str, batches: StackedBatches, dtype: str) -> Array:
        """Return the rows of several steps as a signature takes them; rows that no step uses have any values."""
        rows = batches.x
        if len(rows) == batches.positions.size:
            return np.asarray(rows, dtype)
        if signature not in self._rows:
            self._rows[signature] = np.zeros((batches.positions.size, *rows.shape[1:]), dtype)
        self._rows[signature][: len(rows)] = rows
        return self._rows[signature]

    def _inputs(self, batch: Batch, learning_rate: float, signature: str, mu: float) -> dict[str, Array]:
        """Return the inputs of a training signature."""
        x, y = batch.x, batch.y
        values: dict[str, Any] = {
            "x": x,
            "embedding": x,
            "y": y,
            "sample_weight": batch.sample_weight,
            "learning_rate": np.float32(learning_rate),
            "mu": np.float32(mu),
        }
        if isinstance(x, Columns) or isinstance(y, Columns):  # single arrays, the usual case, stay fast
            values |= prefixed("x", x) | prefixed("y", y)
        for name, declared in self.model.train_inputs.items():
            given = batch.inputs.get(name)
            values[name] = declared.filled(len(batch.sample_weight)) if given is None else given
        return {name: values[name] for name in self.model.signatures[signature].inputs}

    def run(self, signature: str, **inputs: Any) -> dict[str, Array]:
        """Run one signature that may change weights and slots; see `call`."""
        if "weights" in self.model.changes[signature]:
            self._weights = None
        return self.engine.call(signature, **inputs)

    def _write_offset(self, b: Weights | None) -> None:
        """Set the gradient offset, unless the engine already has it; None for zero."""
        if b is not self._offset:
            self._set_offset(Weights.zeros(self.file.offset) if b is None else b.select(self.file.offset))
            self._offset = b

    def _set_offset(self, b: Weights) -> None:
        if b.layout.parameters:
            self.engine.call("set_gradient_offset", **{f"b{i}": tensor for i, tensor in enumerate(b.tensors())})

    def finalize(self) -> None:
        """End the training: set the weights to their moving averages."""
        self._weights = None
        self.engine.call("finalize")

    def infer(self, x: Rows, signature: str = "infer") -> Rows:
        """Return the outputs of `infer`, `embed` or `head_infer` for one batch; several outputs are columns."""
        returned = self.engine.call(signature, **inputs_of(self.model, signature, x))
        return rows_of({name: returned[output] for name, output in self.model.main_outputs(signature).items()})

    def read(self) -> Weights:
        """Return the engine's weights, read-only; also further ones of the model if `write` received them."""
        if self._weights is None:
            outputs = self.engine.call("parameters")
            vector = np.empty(self.file.layout.size, np.float32)
            for name, values in zip(self._restore_names, self.file.layout.slices.values(), strict=True):
                vector[values] = outputs.pop(name).reshape(-1)  # frees each copy at once: models may be large
            vector.flags.writeable = False
            self._weights = Weights(self.file.layout, vector)
        return self._weights

    def write(self, weights: Weights) -> None:
        """Set all weights, unless the engine already has this very object; the caller must not change them afterwards.

        Args:
            weights: Weights of the model, at least those in the engine's file.
        """
        if weights is self._weights:
            return
        held = weights if weights.layout is self.file.layout else weights.select(self.file.layout)
        self._weights = None
        self.engine.call("restore", **dict(zip(self._restore_names, held.tensors(), strict=True)))
        self._weights = weights

    def read_slots(self) -> list[Array]:
        """Return a copy of the engine's optimizer slots; empty if it has none."""
        if not self._slot_names:
            return []
        outputs = self.engine.call("optimizer_state")
        return [np.asarray(outputs[name]) for name in self._slot_names]  # a step count is returned as a scalar

    def write_slots(self, slots: Sequence[Array]) -> None:
        """Set the engine's optimizer slots, selected from all slots of the model."""
        if self._slot_names:
            held = [slots[i] for i in self.file.slots]
            self.engine.call("restore_optimizer_state", **dict(zip(self._slot_names, held, strict=True)))
