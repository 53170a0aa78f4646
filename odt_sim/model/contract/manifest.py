"""The manifest of a trainable model: JSON in the `.tflite` file's metadata."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.errors import ModelError

METADATA_NAME = "odt_sim.manifest"
FORMAT_VERSION = 6
DEFAULT_BATCH_SIZE = 32  # for a file of another tool that takes any number of rows
ROLES = ("trainable", "statistic", "frozen")
GROUPS = ("body", "head", "norm")
REGRESSIONS = ("mean_squared_error", "mean_absolute_error", "huber", "cosine_similarity")
LOSSES = (
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
    "kl_divergence",
    *REGRESSIONS,
)
CTC = "ctc"
"""The loss for transcripts, which the file computes."""
NO_LOSS = "none"
"""The loss of an output that only training steps compute, so that evaluation has none."""
TASKS = ("classification", "segmentation", "regression", "multi_label", "ranking", "transcription", "other")
_MORE_THAN_SGD = (  # settings of Keras' SGD that change its step, and constraints that project the weights after it
    "constraints",
    "momentum",
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)
_KINDS = {"name": str, "from_logits": bool, "optimizer": dict, "batch_size": int}


@dataclass(frozen=True)
class Parameter:
    """One weight tensor of a model.

    Attributes:
        name: The path of the variable in the author's model, such as `dense/kernel`; unique within a model.
        shape: The tensor's shape; empty for a scalar.
        dtype: Always `float32`.
        role: `trainable`; `statistic` for a value that changes without a gradient (BatchNorm's running mean); `frozen` for
            a value that no step changes.
        group: `head` for the last layer with weights, `norm` for normalization layers, `body` for the rest.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    role: str = "trainable"
    group: str = "body"

    @property
    def moves(self) -> bool:
        """Whether training may change it; frozen parameters are never sent."""
        return self.role != "frozen"


def task_of(loss: str | None) -> str:
    """Return the task that a loss implies; `other` for a loss that is neither in `LOSSES` nor `CTC`."""
    if loss == CTC:
        return "transcription"
    if loss not in LOSSES:
        return "other"
    return "regression" if loss in REGRESSIONS else "classification"


@dataclass(frozen=True)
class Output:
    """One output of a model: its loss and its metrics.

    Attributes:
        name: The name in `y_<name>` and `logits_<name>`, an identifier; empty for a model with one output.
        loss: The loss of this output; None for a custom function of the author, `NO_LOSS` if only steps compute it.
        from_logits: Whether the loss takes the output as logits rather than as probabilities.
        delta: The error at which Huber's loss turns from quadratic to linear.
        loss_weight: The factor of its loss in the sum over the outputs.
        task: One of `TASKS`; `other` if its loss is the only metric.
        metrics: The names of additional metrics.
        mask: Whether `infer` also returns `mask`, or `mask_<name>`: 1 where a position counts.
        ignore_class: The label whose positions count neither in training nor in evaluation; None for none.
    """

    name: str = ""
    loss: str | None = None
    from_logits: bool = True
    delta: float = 1.0
    loss_weight: float = 1.0
    task: str = "other"
    metrics: tuple[str, ...] = ()
    mask: bool = False
    ignore_class: int | None = None


TRAIN_INPUTS = ("x", "y", "sample_weight", "learning_rate", "mu")
"""The known inputs of training steps; the first two are required, or `x_<name>` and `y_<name>`."""


@dataclass(frozen=True)
class TrainInput:
    """One further input of `train`.

    Attributes:
        name: Its name in the signature, an identifier.
        shape: Its shape; None as the first size if it has a value for each example.
        dtype: Its dtype.
        default: The value of all its elements if a device passes none.
    """

    name: str
    shape: tuple[int | None, ...] = ()
    dtype: str = "float32"
    default: float = 0.0

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            ValueError: A field has another form.
        """
        if not self.name.isidentifier() or self.name in TRAIN_INPUTS:
            raise ValueError(
                f"training input {self.name!r}, expected an identifier other than {', '.join(TRAIN_INPUTS)}"
            )
        if any(not isinstance(size, int) or size < 1 for size in self.sizes):
            raise ValueError(f"training input {self.name} has shape {list(self.shape)}, expected sizes of at least 1")
        if np.dtype(self.dtype).kind not in "fiu":
            raise ValueError(f"training input {self.name} has dtype {self.dtype}, expected numbers")

    @property
    def of_rows(self) -> bool:
        """Whether it has a value for each example."""
        return self.shape[:1] == (None,)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The shape; without the first axis if it has a value for each example."""
        return self.shape[1:] if self.of_rows else self.shape

    def filled(self, rows: int) -> NDArray[Any]:
        """Return its default for a batch of some rows."""
        shape = [rows if size is None else size for size in self.shape]
        return np.full(shape, self.default, self.dtype)


def read_train_inputs(fields: Sequence[Mapping[str, Any]]) -> tuple[TrainInput, ...]:
    """Return the inputs of a manifest's JSON.

    Raises:
        ValueError: One has another form, or two have the same name.
        KeyError, TypeError: A field is missing or unknown.
    """
    inputs = tuple(TrainInput(**{**each, "shape": tuple(each["shape"])}) for each in fields)
    if len({each.name for each in inputs}) < len(inputs):
        raise ValueError("two training inputs have the same name")
    return inputs


@dataclass(frozen=True)
class Manifest:
    """The self-description of a trainable `.tflite` file.

    Attributes:
        name: The model's name.
        parameters: The weights in the order of the signature `parameters`: `a0..aN`.
        loss: The loss of the first output: one of `LOSSES`, or another name if the file has the signature `loss`; None for
            a custom function of the author, `NO_LOSS` if only steps compute it.
        from_logits: Whether that loss takes the output of `infer` as logits rather than as probabilities.
        optimizer: The optimizer's name and settings, from Keras' `get_config`, and `constraints` if weights have any.
            Empty if unknown.
        batch_size: The rows of one call of `train` and `infer`; for a file that takes any number, the rows of a step.
        random_states: The numbers i of the slots `s<i>` with the state of a random layer, such as Dropout: `[2]`
            int32, a seed from 0 to 2^31 - 2 and a count of draws. Equal states draw equal masks.
        delta: The error at which that loss turns from quadratic to linear, if it is Huber's.
        inputs: `("x",)` for one input, which is `x` in the signatures; else the names in `x_<name>`, identifiers.
        outputs: The outputs; by default one with the loss above.
        train_inputs: The inputs of `train` beyond examples, `sample_weight`, `learning_rate` and `mu`.
        checked: Whether the export did not skip its comparison of the file with the model.
    """

    name: str
    parameters: tuple[Parameter, ...]
    loss: str | None
    from_logits: bool
    optimizer: Mapping[str, Any]
    batch_size: int
    random_states: tuple[int, ...] = ()
    delta: float = 1.0
    inputs: tuple[str, ...] = ("x",)
    outputs: tuple[Output, ...] = ()
    train_inputs: tuple[TrainInput, ...] = ()
    checked: bool = True

    def __post_init__(self) -> None:
        """Describe one output by the loss, unless outputs are given."""
        if not self.outputs:
            output = Output("", self.loss, self.from_logits, self.delta, task=task_of(self.loss))
            object.__setattr__(self, "outputs", (output,))

    @property
    def plain_sgd(self) -> bool:
        """Whether a step is exactly `w - learning_rate * gradient`."""
        settings = self.optimizer
        return settings.get("name", "").lower() == "sgd" and not any(settings.get(extra) for extra in _MORE_THAN_SGD)

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> "Manifest":
        """Read a manifest from JSON.

        Args:
            text: The JSON.
            where: The file's name, for errors.

        Raises:
            ModelError: The text is not a manifest, or has a later version.
        """
        try:
            fields = json.loads(text)
            if (version := fields.pop("format_version")) > FORMAT_VERSION:
                raise ModelError(
                    f"{where}: its manifest has format version {version}, but this odt_sim reads up to {FORMAT_VERSION}; "
                    "upgrade odt_sim or export the model again"
                )
            fields.pop("fingerprint", None)  # until version 5
            manifest = cls(
                parameters=tuple(Parameter(**{**p, "shape": tuple(p["shape"])}) for p in fields.pop("parameters")),
                random_states=tuple(int(i) for i in fields.pop("random_states", ())),
                inputs=tuple(fields.pop("inputs", ("x",))),
                outputs=tuple(Output(**{**o, "metrics": tuple(o["metrics"])}) for o in fields.pop("outputs", ())),
                train_inputs=read_train_inputs(fields.pop("train_inputs", ())),
                **fields,
            )
            manifest._check()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(f"{where}: its manifest is damaged ({reason}); export the model again") from error
        return manifest

    def _check(self) -> None:
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected a {kind.__name__}")
        if not isinstance(self.optimizer.get("name", ""), str):
            raise ValueError(f"its optimizer's name is {self.optimizer['name']!r}, expected a str")
        if len({p.name for p in self.parameters}) != len(self.parameters):
            raise ValueError("two parameters have the same name")
        for p in self.parameters:
            if p.role not in ROLES or p.group not in GROUPS or p.dtype != "float32":
                raise ValueError(
                    f"{p.name} has role {p.role!r}, group {p.group!r}, dtype {p.dtype!r}; expected {ROLES}, {GROUPS}, float32"
                )
        if not isinstance(self.delta, float | int) or not self.delta > 0:
            raise ValueError(f"its delta is {self.delta!r}, expected a number above 0")
        if self.batch_size < 1:
            raise ValueError(f"its batch_size is {self.batch_size}, expected at least 1")
        self._check_outputs()

    def _check_outputs(self) -> None:
        first = self.outputs[0]
        if (first.loss, first.from_logits, first.delta) != (self.loss, self.from_logits, self.delta):
            raise ValueError(f"its loss is {self.loss!r}, but that of its first output is {first.loss!r}")
        names = [output.name for output in self.outputs]
        for side, given in (("inputs", [*self.inputs]), ("outputs", names)):
            single = given == ["x"] if side == "inputs" else given == [""]
            if not single and (len(given) < 2 or len({*given}) < len(given) or not all(map(_is_identifier, given))):
                raise ValueError(f"its {side} are {given!r}, expected different identifiers")
        for output in self.outputs:
            if output.task not in TASKS:
                raise ValueError(
                    f"its output {output.name!r} has task {output.task!r}, expected one of {', '.join(TASKS)}"
                )
            if not isinstance(output.loss, str | None) or not isinstance(output.loss_weight, float | int):
                raise ValueError(
                    f"its output {output.name!r} has loss {output.loss!r} of weight {output.loss_weight!r}"
                )
            if not isinstance(output.ignore_class, int | None):
                raise ValueError(
                    f"its output {output.name!r} has ignore_class {output.ignore_class!r}, expected an int"
                )


def _is_identifier(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isidentifier()


LORA_RANK = "lora_rank_"
"""The capability of a model with trainable adapters, followed by their rank."""
_ADAPTER = re.compile(r"(?:^|/)lora_(?:kernel|embeddings)_([ab])(?:_\d+)?$")


def is_adapter(parameter: Parameter) -> bool:
    """Return whether a parameter is one of the two matrices of an adapter."""
    return bool(_ADAPTER.search(parameter.name))


def ranks_of(parameters: Iterable[Parameter]) -> set[int]:
    """Return the ranks of the trainable adapters: the first size of each second matrix, `[rank, outputs]`."""
    found = ((_ADAPTER.search(p.name), p) for p in parameters if p.role == "trainable")
    return {p.shape[0] for match, p in found if match and match[1] == "b"}
