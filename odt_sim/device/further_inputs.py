"""Values of a model's further training inputs, and weights of examples, for a whole training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.batches import Batch
from odt_sim.errors import DataError, ModelError
from odt_sim.model.contract.manifest import TrainInput
from odt_sim.model.trainable import TrainableModel

Arrays = Mapping[str, NDArray[Any]]
SAMPLE_WEIGHT = "sample_weight"
LEAST_WEIGHT = 1e-20
"""The replacement of a given weight of 0: rows of weight 0 are padding, which counts and batch statistics leave out.

Float32's smallest numbers would slow down the steps.
"""
_WEIGHTS = TrainInput("weights_of_examples", (None,), default=1.0)  # the form of given sample weights


@dataclass(frozen=True, eq=False)
class FurtherInputs:
    """Checked values by name; inputs that are not given have the manifest's default.

    Attributes:
        of_rows: Values for each example, `[examples, ...]`.
        constant: Values that are the same in every step.
    """

    of_rows: Arrays = field(default_factory=dict)
    constant: Arrays = field(default_factory=dict)

    @classmethod
    def checked(cls, model: TrainableModel, inputs: Mapping[str, Any], rows: int, what: str) -> "FurtherInputs":
        """Check given values and return them in the dtypes of the model.

        Args:
            model: The model.
            inputs: Values by the names of the model's training inputs.
            rows: The number of examples.
            what: The name for errors, such as `device 3`.

        Raises:
            ModelError: The model has no such input.
            DataError: A value has another shape or dtype, or a weight is negative, NaN or infinite.
        """
        declared = dict(model.train_inputs)
        if SAMPLE_WEIGHT in model.capabilities:
            declared[SAMPLE_WEIGHT] = _WEIGHTS
        for name in inputs:
            if name not in declared:
                raise ModelError(
                    f"{what}: {model.where} has no training input {name!r}, found {', '.join(declared) or 'none'}; export "
                    "it with a term that takes it (terms=[...])"
                )
        values = {name: _checked(name, value, declared[name], rows, what) for name, value in inputs.items()}
        of_rows = {name: value for name, value in values.items() if declared[name].of_rows}
        return cls(of_rows, {name: value for name, value in values.items() if name not in of_rows})

    def rows(self, order: NDArray[np.int64]) -> Arrays:
        """Return the examples' values in an order."""
        return {name: array[order] for name, array in self.of_rows.items()}

    def added(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Add the constant values to batches, and apply the weights of examples."""
        if SAMPLE_WEIGHT in self.of_rows:
            batches = map(_weighted, batches)
        if not self.constant:
            return batches
        return (batch._replace(inputs={**batch.inputs, **self.constant}) for batch in batches)


NONE = FurtherInputs()


def _weighted(batch: Batch) -> Batch:
    """Multiply a batch's weights, which are 0 for padding, by the given weights of its examples."""
    inputs = {name: array for name, array in batch.inputs.items() if name != SAMPLE_WEIGHT}
    return batch._replace(sample_weight=batch.sample_weight * batch.inputs[SAMPLE_WEIGHT], inputs=inputs)


def _checked(name: str, value: Any, declared: TrainInput, rows: int, what: str) -> NDArray[Any]:
    array = np.asarray(value)
    shape = tuple(rows if size is None else size for size in declared.shape)
    if array.shape != shape or not np.can_cast(array.dtype, declared.dtype, "same_kind"):
        raise DataError(
            f"{what}: training input {name!r}: expected {declared.dtype} {list(shape)}, found {array.dtype} "
            f"{list(array.shape)}" + ("; give one row per example" if declared.of_rows else "")
        )
    # NaN is accepted: from a diverged model, it leads to NaN losses, which exclude the device.
    with np.errstate(over="ignore"):  # a weight becomes infinite and is refused
        array = array.astype(declared.dtype, copy=False)
    if name != SAMPLE_WEIGHT:
        return array
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{what}: training input {SAMPLE_WEIGHT!r}: expected finite numbers of at least 0, found {array[row]} "
            f"for example {row}"
        )
    return np.where(array == 0, np.float32(LEAST_WEIGHT), array)


def checked_call(model: TrainableModel, signature: str, inputs: Mapping[str, Any], what: str) -> Arrays:
    """Check the inputs of a signature call, and return them in the declared dtypes.

    Args:
        model: The model.
        signature: The signature's name.
        inputs: Its inputs by name.
        what: The name for errors, such as `device 3`.

    Raises:
        ModelError: The file has no such signature, or an input is missing, unknown or of another shape or dtype.
    """
    if signature not in model.signatures:
        raise ModelError(
            f"{what}: {model.where} has no signature {signature!r}; expected one of {', '.join(model.signatures)}"
        )
    declared = model.signatures[signature].inputs
    if declared.keys() != inputs.keys():
        expected, passed = (", ".join(names) or "none" for names in (declared, inputs))
        raise ModelError(f"{what}: signature {signature!r} of {model.where} takes {expected}; found {passed}")
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    for name, tensor in declared.items():
        array = arrays[name]
        fits = array.ndim == len(tensor.shape) and all(
            expected in (-1, size) for expected, size in zip(tensor.shape, array.shape, strict=True)
        )
        if not fits or not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
            raise ModelError(
                f"{what}: input {name!r} of signature {signature!r}: expected {tensor.dtype} {list(tensor.shape)}, found "
                f"{array.dtype} {list(array.shape)}"
            )
        arrays[name] = array.astype(tensor.dtype, copy=False)
    return arrays
