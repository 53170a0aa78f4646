"""A trainable `.tflite` file: its signatures, its parameters and what they are for."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from odt_sim.errors import ModelError
from odt_sim.model import flatbuffer
from odt_sim.model.flatbuffer import FlatModel, Signature, TensorInfo
from odt_sim.model.manifest import LOSSES, METADATA_NAME, Manifest, Parameter
from odt_sim.model.weights import Layout

REQUIRED = ("train", "infer", "parameters", "restore")
DEFAULT_BATCH_SIZE = 32  # for a model of dynamic batch that has no manifest


@dataclass(frozen=True, eq=False)
class TrainableModel:
    """The artifact that every device trains. It holds no interpreter and pickles as its bytes.

    Attributes:
        content: The `.tflite` file's bytes.
        where: The file's name, for messages.
        signatures: The entry points by name.
        operators: For each signature the number of ops of each kind.
        layout: The parameters in the order `a0..aN`.
        manifest: What the file says of itself; None for a file that another tool exported.
        loss: The loss that `train` minimizes, one of `manifest.LOSSES`; None where not known.
        from_logits: Whether the loss takes the output of `infer` as logits.
        fingerprint: SHA-256 of the content, in hexadecimal.
    """

    content: bytes
    where: str
    signatures: dict[str, Signature]
    operators: dict[str, dict[str, int]]
    layout: Layout
    manifest: Manifest | None
    loss: str | None
    from_logits: bool
    fingerprint: str

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, loss: str | None = None, from_logits: bool = True
    ) -> "TrainableModel":
        """Reads a trainable `.tflite` file.

        Args:
            path: The file.
            loss: The loss of a file that has no manifest, one of `manifest.LOSSES`, so that devices can evaluate it.
            from_logits: Whether that loss takes the output of `infer` as logits.

        Raises:
            ModelError: The file is missing, is no `.tflite` file, or lacks a needed signature, input or output.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ModelError(
                f"{path}: cannot read the model ({error.strerror}); give the path of a .tflite file"
            ) from error
        return cls.from_content(content, where=str(path), loss=loss, from_logits=from_logits)

    @classmethod
    def from_content(
        cls, content: bytes, *, where: str = "model", loss: str | None = None, from_logits: bool = True
    ) -> "TrainableModel":
        """Reads a trainable `.tflite` file that is already in memory; see `load`."""
        flat = flatbuffer.read(content, where)
        _check_signatures(flat, where)
        text = flat.metadata.get(METADATA_NAME)
        manifest = Manifest.from_json(text, where) if text is not None else None
        declared = _ordered(flat.signatures["parameters"].outputs.values(), "a", where)
        layout = Layout(
            manifest.parameters if manifest else tuple(Parameter(t.name, t.shape, t.dtype) for t in declared)
        )
        _check_parameters(flat, layout, declared, where)
        if manifest:
            loss, from_logits = manifest.loss, manifest.from_logits
        elif loss is not None and loss not in LOSSES:
            raise ModelError(f"{where}: unknown loss {loss!r}; expected one of {', '.join(LOSSES)}")
        return cls(
            content=content,
            where=where,
            signatures=flat.signatures,
            operators=flat.operators,
            layout=layout,
            manifest=manifest,
            loss=loss,
            from_logits=from_logits,
            fingerprint=flatbuffer.fingerprint(content),
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles as the bytes: the rest is read from them."""
        return _rebuild, (self.content, self.where, self.loss, self.from_logits)

    @property
    def name(self) -> str:
        """The model's name: the manifest's, else the file's."""
        return self.manifest.name if self.manifest else Path(self.where).stem

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Name, shape, dtype, role and group of every parameter, in the order `a0..aN`."""
        return self.layout.parameters

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
        """The output of `infer`: `logits`, or the only one."""
        outputs = self.signatures["infer"].outputs
        return outputs.get("logits") or next(iter(outputs.values()))

    @cached_property
    def batch_size(self) -> int:
        """The rows of one training step."""
        if self.x.shape[0] > 0:
            return self.x.shape[0]
        return self.manifest.batch_size if self.manifest else DEFAULT_BATCH_SIZE

    @property
    def classes(self) -> int | None:
        """The number of classes of a classifier; None for regression or where the loss is not known."""
        classifies = self.loss in ("sparse_categorical_crossentropy", "categorical_crossentropy")
        return self.output.shape[-1] if classifies else None

    @cached_property
    def slots(self) -> tuple[TensorInfo, ...]:
        """The optimizer's slots `s0..sM`; empty where it has none."""
        signature = self.signatures.get("optimizer_state")
        return tuple(_ordered(signature.outputs.values(), "s", self.where)) if signature else ()

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """What a strategy may ask for in `needs`.

        The names of the signatures, `sample_weight` and `learning_rate` where `train` takes them, the groups that the
        parameters form, `mu` where a step has a proximal term, `plain_sgd` where a step is nothing else.
        """
        names = {*self.signatures, *self.signatures["train"].inputs, *(p.group for p in self.parameters)} - {"x", "y"}
        return frozenset(names | ({"plain_sgd"} if self.manifest and self.manifest.plain_sgd else set()))


def _rebuild(content: bytes, where: str, loss: str | None, from_logits: bool) -> TrainableModel:
    return TrainableModel.from_content(content, where=where, loss=loss, from_logits=from_logits)


def _check_signatures(flat: FlatModel, where: str) -> None:
    found = ", ".join(flat.signatures) or "none"
    for name in REQUIRED:
        if name not in flat.signatures:
            raise ModelError(
                f"{where}: no signature {name!r}, found {found}; export a trainable model, with odt_sim.export.export_model"
            )
    flex = sorted({op for ops in flat.operators.values() for op in ops if op.startswith("Flex")})
    if flex:
        raise ModelError(
            f"{where}: holds Flex ops ({', '.join(flex)}) that LiteRT cannot run; export it with odt_sim.export.export_model"
        )
    for name, expected in (("train", {"x", "y"}), ("infer", {"x"})):
        missing = expected - set(flat.signatures[name].inputs)
        if missing:
            raise ModelError(
                f"{where}: signature {name!r} has no input {missing.pop()!r}; name its inputs as documented"
            )
    known = {"x", "y", "sample_weight", "learning_rate", "mu"}
    unknown = set(flat.signatures["train"].inputs) - known
    if unknown:
        raise ModelError(
            f"{where}: signature 'train' has an input {unknown.pop()!r}; expected {', '.join(sorted(known))}"
        )
    if "loss" not in flat.signatures["train"].outputs:
        raise ModelError(f"{where}: signature 'train' has no output 'loss'; return the loss of the batch as 'loss'")


def _ordered(tensors: Iterable[TensorInfo], prefix: str, where: str) -> list[TensorInfo]:
    """Returns a0, a1, ..., a10 in the order of their numbers."""
    found = {t.name: t for t in tensors}
    expected = [f"{prefix}{i}" for i in range(len(found))]
    if set(found) != set(expected):
        odd = sorted(name for name in found if not re.fullmatch(prefix + r"\d+", name)) or sorted(found)
        raise ModelError(f"{where}: expected the weights as {prefix}0..{prefix}{len(found) - 1}, found {odd[0]!r}")
    return [found[name] for name in expected]


def _check_parameters(flat: FlatModel, layout: Layout, declared: list[TensorInfo], where: str) -> None:
    if tuple(t.shape for t in declared) != tuple(p.shape for p in layout.parameters):
        raise ModelError(f"{where}: the manifest's shapes are not those of the signature 'parameters'; export it again")
    for tensor in declared:
        if tensor.dtype != "float32" or min(tensor.shape, default=1) < 0:
            raise ModelError(
                f"{where}: parameter {tensor.name} is {tensor.dtype} {list(tensor.shape)}; expected float32 of a fixed shape"
            )
    restored = {(t.name, t.shape) for t in flat.signatures["restore"].inputs.values()}
    if restored != {(t.name, t.shape) for t in declared}:
        raise ModelError(
            f"{where}: the inputs of 'restore' are not the outputs of 'parameters'; they must pair, a0..aN"
        )
