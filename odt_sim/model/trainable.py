"""A trainable `.tflite` file: its signatures and its parameters."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from odt_sim.errors import ModelError
from odt_sim.model import flatbuffer
from odt_sim.model.contract import (
    answer_of,
    check_loss,
    check_parameters,
    check_random_states,
    check_signatures,
    ordered,
)
from odt_sim.model.flatbuffer import Signature, TensorInfo
from odt_sim.model.layers import Groups
from odt_sim.model.manifest import DEFAULT_BATCH_SIZE as DEFAULT_BATCH_SIZE
from odt_sim.model.manifest import GROUPS, LOSSES, METADATA_NAME, REGRESSIONS, Manifest, Parameter
from odt_sim.model.optional_signatures import ON_EMBEDDINGS, check_optional
from odt_sim.model.roles import Corrections
from odt_sim.model.trial import loaded
from odt_sim.model.weights import Layout


@dataclass(frozen=True, eq=False)
class TrainableModel:
    """The model that every device trains, without an interpreter; it pickles as its bytes.

    Attributes:
        content: The `.tflite` file's bytes.
        where: The file's name, for messages.
        signatures: The entry points by name.
        operators: By signature, the number of ops of each kind.
        layout: The parameters in the order `a0..aN`.
        manifest: The file's self-description; None for a file of another tool.
        loss: The loss that `train` minimizes, one of `manifest.LOSSES`; None if unknown.
        from_logits: Whether the loss takes the output of `infer` as logits.
        fingerprint: SHA-256 of the content, in hexadecimal.
    """

    content: bytes = field(repr=False)
    where: str
    signatures: dict[str, Signature] = field(repr=False)
    operators: dict[str, dict[str, int]] = field(repr=False)
    layout: Layout = field(repr=False)
    manifest: Manifest | None = field(repr=False)
    loss: str | None
    from_logits: bool
    fingerprint: str

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

        A file without odt_sim's manifest is adapted in memory: its signatures are found by names, shapes and the graph, and
        those that read and write weights are added where it has none. The file itself does not change.

        Args:
            path: The file.
            loss: The loss, one of `manifest.LOSSES`, for a file without a manifest or with an unknown loss; None infers it
                where it is sure.
            from_logits: Whether that loss takes the output of `infer` as logits.
            signatures: For a file without a manifest, by role (`train`, `infer`, `initialize`, ...) the signature's name, or
                a mapping with `name` and the file's own names of `x`, `y`, `loss`, `output`, ....
            groups: For a file without a manifest, by group (`head`, `norm`) the names of layers or the numbers of weights.
                By default, the head is the last trained layer.
            flex: Whether Flex ops are accepted, for `backend.runtime=flex`; LiteRT then does not verify the file.

        Raises:
            ModelError: The file is missing, is not a trainable `.tflite` file, or LiteRT cannot run it.
        """
        content = read_file(path)
        content = loaded(
            content, str(path), signatures=signatures, groups=groups, loss=loss, from_logits=from_logits, flex=flex
        ).content
        return cls.from_content(content, where=str(path), loss=loss, from_logits=from_logits, flex=flex)

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
        check_signatures(flat, where, flex=flex)
        text = flat.metadata.get(METADATA_NAME)
        manifest = Manifest.from_json(text, where) if text is not None else None
        if not (manifest and manifest.loss) or "loss" in flat.signatures["train"].outputs:
            check_loss(flat, "train", where)
        declared = ordered(flat.signatures["parameters"].outputs.values(), "a", where)
        parameters = manifest.parameters if manifest else tuple(Parameter(t.name, t.shape) for t in declared)
        check_parameters(flat, parameters, where)
        check_optional(flat, parameters, where)
        check_random_states(flat, manifest.random_states if manifest else (), where)
        if manifest and manifest.loss:
            loss, from_logits = manifest.loss, manifest.from_logits
        elif loss is not None and loss not in LOSSES:
            raise ModelError(f"{where}: unknown loss {loss!r}; expected one of {', '.join(LOSSES)}")
        return cls(
            content=content,
            where=where,
            signatures=flat.signatures,
            operators=flat.operators,
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
        """The manifest's name, else the file's."""
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
        """The parameters that training may change: all but frozen ones."""
        return self.layout.select(lambda p: p.moves)

    def all_moves_in(self, groups: Sequence[str]) -> bool:
        """Whether steps change only parameters of these groups."""
        return all(p.group in groups or not p.moves for p in self.parameters)

    @cached_property
    def embeds(self) -> bool:
        """Whether it can embed examples, and train and run its head on embeddings."""
        return self.signatures.keys() >= set(ON_EMBEDDINGS)

    @cached_property
    def x(self) -> TensorInfo:
        """The input `x` of `train`: `[batch, ...]`."""
        return self.signatures["train"].inputs["x"]

    @cached_property
    def y(self) -> TensorInfo:
        """The input `y` of `train`: `[batch, ...]`."""
        return self.signatures["train"].inputs["y"]

    @cached_property
    def output(self) -> TensorInfo:
        """The main output of `infer`: `logits`, or the only one."""
        return answer_of(self.signatures["infer"])

    @property
    def fixed_batch(self) -> bool:
        """Whether `train` takes a fixed number of rows."""
        return self.x.shape[0] > 0

    @cached_property
    def batch_size(self) -> int:
        """The rows of one training step."""
        if self.fixed_batch:
            return self.x.shape[0]
        return self.manifest.batch_size if self.manifest else DEFAULT_BATCH_SIZE

    @property
    def delta(self) -> float:
        """The error at which Huber's loss turns from quadratic to linear."""
        return self.manifest.delta if self.manifest else 1.0

    @property
    def classes(self) -> int | None:
        """The number of classes: two for binary cross-entropy; None for regression or an unknown loss."""
        if self.loss == "binary_crossentropy":
            return 2
        classifies = self.loss is not None and self.loss not in REGRESSIONS
        return self.output.shape[-1] if classifies else None

    @cached_property
    def slots(self) -> tuple[TensorInfo, ...]:
        """The optimizer's slots `s0..sM`; empty if it has none."""
        signature = self.signatures.get("optimizer_state")
        return tuple(ordered(signature.outputs.values(), "s", self.where)) if signature else ()

    @property
    def random_states(self) -> tuple[int, ...]:
        """The numbers of the slots that hold the state of a random layer, see `Manifest`."""
        return self.manifest.random_states if self.manifest else ()

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """The names that a strategy's `needs` may contain.

        They are the signatures, the inputs of `train` except `x` and `y` (`sample_weight`, `learning_rate`, `mu`), the
        groups of the parameters, `plain_sgd`, `gradient_offset` if `Device.set_gradient_offset` works, and
        `train_<group>` for each group that `Device.train` can train alone.
        """
        names = {*self.signatures, *self.signatures["train"].inputs, *(p.group for p in self.parameters)} - {"x", "y"}
        plain = {"plain_sgd"} if self.manifest and self.manifest.plain_sgd else set()
        on_host = plain and "learning_rate" in names
        offset = {"gradient_offset"} if on_host or "set_gradient_offset" in names else set()
        alone = {f"train_{group}" for group in GROUPS if self.all_moves_in((group,))}
        head = {"train_head"} if self.embeds else set()
        return frozenset(names | plain | offset | alone | head)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a model's file.

    Raises:
        ModelError: It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot read the model ({error.strerror}); give the path of a .tflite file"
        ) from error


def _rebuild(content: bytes, where: str, loss: str | None, from_logits: bool) -> TrainableModel:
    return TrainableModel.from_content(content, where=where, loss=loss, from_logits=from_logits, flex=True)
