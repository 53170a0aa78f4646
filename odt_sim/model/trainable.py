"""A trainable `.tflite` file: its signatures and its parameters."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from odt_sim.errors import ConfigurationError, ModelError
from odt_sim.model.contract.manifest import DEFAULT_BATCH_SIZE as DEFAULT_BATCH_SIZE
from odt_sim.model.contract.manifest import (
    GROUPS,
    LORA_RANK,
    LOSSES,
    METADATA_NAME,
    Manifest,
    Output,
    Parameter,
    TrainInput,
    ranks_of,
    task_of,
)
from odt_sim.model.contract.names import ROW_INPUTS, is_one_of, parts
from odt_sim.model.contract.signatures import ON_EMBEDDINGS, answers_of, check_contract, ordered
from odt_sim.model.foreign.adaptation import adapted, tried
from odt_sim.model.foreign.roles import Corrections
from odt_sim.model.foreign.weights import Groups
from odt_sim.model.reading import flatbuffer
from odt_sim.model.reading.flatbuffer import Signature, TensorInfo
from odt_sim.model.weights import Layout

ANSWERING = ("infer", "embed", "head_infer")


@dataclass(frozen=True, eq=False)
class TrainableModel:
    """The model that every device trains, without an interpreter; it pickles as its bytes.

    Attributes:
        content: The `.tflite` file's bytes.
        where: The file's name, for messages.
        signatures: The entry points by name.
        operators: The number of ops of each kind, by signature.
        vocabularies: The number of ids that an input accepts, counted from 0, by input name; inputs without ids are
            left out.
        scales: The factor by which an input is multiplied first, by input name; inputs without one are left out.
        changes: By signature, which of `weights` and `slots` it changes, such as the slots with a random state.
        layout: The parameters in the order `a0..aN`.
        manifest: The file's self-description; None for a file from another tool.
        loss: The loss of the first output that `train` minimizes: one of `manifest.LOSSES`, or another name if the file
            has the signature `loss`; None if it has no name.
        from_logits: Whether the output of `infer` is logits for the loss.
        fingerprint: SHA-256 of the content, in hexadecimal.
    """

    content: bytes = field(repr=False)
    where: str
    signatures: dict[str, Signature] = field(repr=False)
    operators: dict[str, dict[str, int]] = field(repr=False)
    vocabularies: dict[str, int] = field(repr=False)
    scales: dict[str, float] = field(repr=False)
    changes: dict[str, frozenset[str]] = field(repr=False)
    layout: Layout = field(repr=False)
    manifest: Manifest | None = field(repr=False)
    loss: str | None
    from_logits: bool
    fingerprint: str

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse a single argument, such as a path.

        Raises:
            ConfigurationError: There is only one argument.
        """
        if len(args) + len(kwargs) == 1:
            raise ConfigurationError(
                "TrainableModel: expected the parts of a file; to load a file, use TrainableModel.load(path)"
            )
        return super().__new__(cls)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        loss: str | None = None,
        from_logits: bool = True,
        signatures: Corrections | None = None,
        groups: Groups | None = None,
        flex: bool = False,
    ) -> "TrainableModel":
        """Read a trainable `.tflite` file; a file seen for the first time is verified in a subprocess.

        A file without odt_sim's manifest is adapted in memory: its signatures are found by names, shapes and the graph,
        and signatures that read and write weights are added if it has none. The file itself does not change.

        Args:
            path: The file.
            loss: The loss, one of `manifest.LOSSES`, for a file without a manifest or with an unknown loss; None infers
                it if that is certain.
            from_logits: Whether the output of `infer` is logits for that loss.
            signatures: For a file without a manifest, a mapping from roles (`train`, `infer`, `initialize`, ...) to the
                signature's name, or to a mapping with `name` and the file's own names of `x`, `y`, `loss`, `output`,
                ....
            groups: For a file without a manifest, a mapping from groups (`head`, `norm`) to names of layers or numbers
                of weights. By default, the head is the last trained layer.
            flex: Whether Flex ops are accepted, for `backend.runtime=flex`; LiteRT then does not verify the file.

        Raises:
            ModelError: The file is missing, is not a trainable `.tflite` file, or LiteRT cannot run it.
        """
        make, where = adapted if flex else tried, str(path)
        found = make(
            read_file(path), where, signatures=signatures, groups=groups, loss=loss, from_logits=from_logits, flex=flex
        )
        return cls.from_content(found.content, where=where, loss=loss, from_logits=from_logits, flex=flex)

    @classmethod
    def from_content(
        cls,
        content: bytes,
        *,
        where: str = "model",
        loss: str | None = None,
        from_logits: bool = True,
        flex: bool = False,
    ) -> "TrainableModel":
        """Read a trainable `.tflite` file from memory, without verification in a subprocess; see `load`."""
        flat = flatbuffer.read(content, where)
        text = flat.metadata.get(METADATA_NAME)
        manifest = Manifest.from_json(text, where) if text is not None else None
        parameters = check_contract(flat, manifest, where, flex=flex)
        if manifest and manifest.loss:
            loss, from_logits = manifest.loss, manifest.from_logits
        elif loss is not None and loss not in LOSSES:
            raise ModelError(f"{where}: unknown loss {loss!r}; expected one of {', '.join(LOSSES)}")
        return cls(
            content=content,
            where=where,
            signatures=flat.signatures,
            operators=flat.operators,
            vocabularies=parts(flat.vocabularies, "x"),
            scales=parts(flat.scales, "x"),
            changes=flat.changes,
            layout=Layout(parameters),
            manifest=manifest,
            loss=loss,
            from_logits=from_logits,
            fingerprint=flatbuffer.fingerprint(content),
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the bytes only."""
        return _rebuild, (self.content, self.where, self.loss, self.from_logits)

    @property
    def name(self) -> str:
        """The name in the manifest, else the file's name."""
        return self.manifest.name if self.manifest else Path(self.where).stem

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order `a0..aN`."""
        return self.layout.parameters

    @cached_property
    def trainable_layout(self) -> Layout:
        """The parameters that gradients change, in the order of a gradient offset `b0..bK`."""
        return self.layout.select(lambda p: p.role == "trainable")

    @cached_property
    def moving(self) -> Layout:
        """The parameters that training may change: all except frozen ones."""
        return self.layout.select(lambda p: p.moves)

    def all_moves_in(self, groups: Sequence[str]) -> bool:
        """Whether steps change only parameters of these groups."""
        return all(p.group in groups or not p.moves for p in self.parameters)

    @cached_property
    def embeds(self) -> bool:
        """Whether the model can embed examples, and train and run its head on embeddings."""
        return self.signatures.keys() >= set(ON_EMBEDDINGS)

    @cached_property
    def inputs(self) -> dict[str, TensorInfo]:
        """The inputs `[batch, ...]` by name, in the manifest's order: `{"": x}`, or one for each `x_<name>`."""
        found = parts(self.signatures["train"].inputs, "x")
        return found if "" in found or not self.manifest else {name: found[name] for name in self.manifest.inputs}

    @cached_property
    def infer_inputs(self) -> dict[str, TensorInfo]:
        """The inputs of `infer` by the same names; their rows may differ."""
        found = parts(self.signatures["infer"].inputs, "x")
        return {name: found[name] for name in self.inputs}

    @cached_property
    def targets(self) -> dict[str, TensorInfo]:
        """The targets `[batch, ...]` by name: `{"": y}`, or one for each `y_<name>`, in the order of the outputs."""
        found = parts(self.signatures["train"].inputs, "y")
        return {name: found[name] for name in sorted(found, key=[*self.answers, *found].index)}

    @cached_property
    def answers(self) -> dict[str, TensorInfo]:
        """The outputs of `infer` by name: `{"": logits}`, or one for each `logits_<name>`, in the manifest's order."""
        found = answers_of(self.signatures["infer"])
        return found if "" in found or not self.manifest else {o.name: found[o.name] for o in self.manifest.outputs}

    def main_outputs(self, signature: str) -> dict[str, str]:
        """Return the names of the main outputs of `infer`, `embed` or `head_infer`, by the names of the outputs."""
        return self._main_outputs[signature]

    @cached_property
    def _main_outputs(self) -> dict[str, dict[str, str]]:
        found = {name: answers_of(self.signatures[name]) for name in ANSWERING if name in self.signatures}
        same = self.answers.keys()
        return {
            signature: {name: of[name].name for name in (self.answers if of.keys() == same else of)}
            for signature, of in found.items()
        }

    @cached_property
    def masks(self) -> dict[str, TensorInfo]:
        """The masks that `infer` returns, by output name; empty if there are none."""
        return parts(self.signatures["infer"].outputs, "mask")

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The losses, tasks and metrics of the outputs, in the order of `answers`."""
        if self.manifest and (self.manifest.loss or self.loss is None):
            return self.manifest.outputs
        if len(self.answers) == 1:
            return (Output("", self.loss, self.from_logits, self.delta, task=task_of(self.loss)),)
        return tuple(Output(name, self.loss, self.from_logits, task=task_of(self.loss)) for name in self.answers)

    @property
    def returns_losses(self) -> bool:
        """Whether the signature `loss` computes each example's loss."""
        return "loss" in self.signatures

    @property
    def x(self) -> TensorInfo:
        """The input `x` of `train`, for a model with one input: `[batch, ...]`."""
        return self._only(self.inputs, "inputs")

    @property
    def y(self) -> TensorInfo:
        """The input `y` of `train`, for a model with one target: `[batch, ...]`."""
        return self._only(self.targets, "targets")

    @property
    def output(self) -> TensorInfo:
        """The main output of `infer`, for a model with one output: `logits`, or the only one."""
        return self._only(self.answers, "outputs")

    def _only(self, tensors: Mapping[str, TensorInfo], what: str) -> TensorInfo:
        if len(tensors) > 1:
            raise ModelError(
                f"{self.where}: has the {what} {', '.join(tensors)}; expected exactly one; export the model with one"
            )
        return next(iter(tensors.values()))

    @cached_property
    def fixed_batch(self) -> bool:
        """Whether `train` accepts only a fixed number of rows."""
        return next(iter(self.inputs.values())).shape[0] > 0

    @cached_property
    def batch_size(self) -> int:
        """The number of rows in a training step."""
        if self.fixed_batch:
            return next(iter(self.inputs.values())).shape[0]
        return self.manifest.batch_size if self.manifest else DEFAULT_BATCH_SIZE

    @property
    def delta(self) -> float:
        """The error at which Huber's loss turns from quadratic to linear."""
        return self.manifest.delta if self.manifest else 1.0

    @cached_property
    def classes(self) -> int | None:
        """The number of classes of the first target, see `classes_by_target`."""
        return next(iter(self.classes_by_target.values()))

    @cached_property
    def classes_by_target(self) -> dict[str, int | None]:
        """The number of classes by target: two for binary cross-entropy; None for regression or an unknown loss."""
        known = {output.name: _classes(output, self.answers[output.name]) for output in self.outputs}
        return {name: known.get(name) for name in self.targets}

    @cached_property
    def ignored_classes(self) -> dict[str, int | None]:
        """The label of each target whose positions do not count; None for none."""
        known = {output.name: output.ignore_class for output in self.outputs}
        return {name: known.get(name) for name in self.targets}

    @cached_property
    def slots(self) -> tuple[TensorInfo, ...]:
        """The optimizer's slots `s0..sM`; empty if it has none."""
        signature = self.signatures.get("optimizer_state")
        return tuple(ordered(signature.outputs.values(), "s", self.where)) if signature else ()

    @cached_property
    def scheduled(self) -> bool:
        """Whether the signature `schedule` gives the learning rate of a step."""
        return "schedule" in self.signatures and bool(self.manifest and self.manifest.optimizer.get("schedule"))

    @cached_property
    def finalizes(self) -> bool:
        """Whether training ends with the signature `finalize`, which sets the weights to their moving averages."""
        return "finalize" in self.signatures and bool(self.manifest and self.manifest.optimizer.get("use_ema"))

    @cached_property
    def train_inputs(self) -> dict[str, TrainInput]:
        """Further inputs of training steps by name, which `Device.train(inputs=...)` passes."""
        return {each.name: each for each in self.manifest.train_inputs} if self.manifest else {}

    @property
    def random_states(self) -> tuple[int, ...]:
        """The numbers of the slots with the state of a random layer, see `Manifest`."""
        return self.manifest.random_states if self.manifest else ()

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """The names that a strategy's `needs` may contain.

        They are the signatures, the inputs of `train` except `x` and `y` (`sample_weight`, `learning_rate`, `mu`), the
        groups of the parameters, `plain_sgd`, `gradient_offset` if `Device.set_gradient_offset` works,
        `train_<group>` for each group that `Device.train` can train alone, and `lora_rank_<rank>` for adapters.
        """
        options = {name for name in self.signatures["train"].inputs if not is_one_of(name, ROW_INPUTS)}
        names = {*self.signatures, *options, *(p.group for p in self.parameters)}
        plain = {"plain_sgd"} if self.manifest and self.manifest.plain_sgd else set()
        on_host = plain and "learning_rate" in names
        offset = {"gradient_offset"} if on_host or "set_gradient_offset" in names else set()
        alone = {f"train_{group}" for group in GROUPS if self.all_moves_in((group,))}
        head = {"train_head"} if self.embeds else set()
        adapters = {f"{LORA_RANK}{rank}" for rank in ranks_of(self.parameters)}
        return frozenset(names | plain | offset | alone | head | adapters)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a model's file.

    Raises:
        ModelError: The file cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot read the model ({error.strerror}); give the path of a .tflite file"
        ) from error


def _classes(output: Output, answer: TensorInfo) -> int | None:
    if output.loss == "binary_crossentropy" or output.task == "multi_label":
        return 2
    if not {output.task, task_of(output.loss)} & {"classification", "segmentation", "transcription"}:
        return None
    return 2 if answer.shape[-1] == 1 and output.loss not in LOSSES else answer.shape[-1]


def _rebuild(content: bytes, where: str, loss: str | None, from_logits: bool) -> TrainableModel:
    return TrainableModel.from_content(content, where=where, loss=loss, from_logits=from_logits, flex=True)
