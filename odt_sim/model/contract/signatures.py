"""The signature contract of a trainable `.tflite` file, and its check.

| signature | inputs | outputs |
|---|---|---|
| `train` | `x`, `y`, and any of `sample_weight`, `learning_rate`, `mu` and the manifest's further inputs | `loss` |
| `infer` | `x` | `logits`, or the only output |
| `parameters`, `restore` | none; `a0..aN` | `a0..aN`; any |
| `optimizer_state`, `restore_optimizer_state` | none; `s0..sM` | `s0..sM`; any |
| `train_<group>` | as `train` | as `train`; trains one group of parameters, or several joined by `_` |
| `loss` | outputs of `infer`, and `x` and `y` of `train` | `losses`, one for each example |
| `embed` | `x` | `embedding`, the input of the head |
| `head_train` | as `train`, with `embedding` instead of `x` | as `train`; trains the head |
| `head_infer` | `embedding` | as `infer` |
| `set_gradient_offset` | `b0..bK`, one for each trainable parameter | any |
| `schedule` | `step`, counted from 0 | `learning_rate` of the step |
| `finalize` | | any; ends a training: sets the weights to their moving averages |

The first four are required, and several inputs and outputs are named as in `odt_sim.model.contract.names`. With
`set_gradient_offset`, every training step takes `mu` and uses g + mu w + b instead of the gradient g. The last two are
used only if the manifest's optimizer has a `schedule`, or `use_ema`. Signatures with other names are not checked.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NoReturn

from odt_sim._support.text import few
from odt_sim.errors import ModelError
from odt_sim.model.contract.manifest import GROUPS, LOSSES, NO_LOSS, Manifest, Parameter
from odt_sim.model.contract.manifest import TRAIN_INPUTS as TRAIN_INPUTS
from odt_sim.model.contract.names import ROW_INPUTS, full, is_one_of, parts
from odt_sim.model.reading.flatbuffer import FlatModel, Signature, TensorInfo
from odt_sim.model.reading.flatbuffer import shape_text as shape_text

REQUIRED = ("train", "infer", "parameters", "restore")
ON_EMBEDDINGS = ("embed", "head_train", "head_infer")
OPTIONAL = (
    *("optimizer_state", "restore_optimizer_state", "set_gradient_offset"),
    *(*ON_EMBEDDINGS, "loss"),
    *("schedule", "finalize"),
)
_NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
_EXPORT = "export it with odt_sim.export.export_model"


def is_called(signature: str) -> bool:
    """Return whether devices call a signature of this name; others may stay in a file and are never run."""
    return signature in (*REQUIRED, *OPTIONAL) or signature.startswith("train_")


def parts_of(group: str) -> tuple[str, ...]:
    """Return the parameter groups in a name such as `body_norm`; empty for an unknown name."""
    groups = tuple(group.split("_"))
    return groups if set(groups) <= set(GROUPS) else ()


def answers_of(signature: Signature) -> dict[str, TensorInfo]:
    """Return the main outputs of an inference signature by their names in the manifest.

    These are `{"": output}` for `logits`, `embedding` or the only output, or one for each `logits_<name>`.
    """
    outputs = {name: tensor for name, tensor in signature.outputs.items() if not is_one_of(name, ("mask",))}
    if several := parts(outputs, "logits"):
        return several
    return {"": outputs.get("embedding") or next(iter(outputs.values()))}


def ordered(tensors: Iterable[TensorInfo], prefix: str, where: str) -> list[TensorInfo]:
    """Return a0, a1, ..., a10 in numeric order.

    Raises:
        ModelError: The names are not consecutive.
    """
    by_name = {t.name: t for t in tensors}
    expected = [f"{prefix}{i}" for i in range(len(by_name))]
    if set(by_name) != set(expected):
        wrong = sorted(name for name in by_name if not re.fullmatch(prefix + r"\d+", name)) or sorted(by_name)
        raise ModelError(f"{where}: expected the weights as {prefix}0..{prefix}{len(by_name) - 1}, found {wrong[0]!r}")
    return [by_name[name] for name in expected]


def check_contract(
    flat: FlatModel, manifest: Manifest | None, where: str, *, flex: bool = False
) -> tuple[Parameter, ...]:
    """Check a trainable file's signatures and manifest against the contract, and return its parameters `a0..aN`.

    Args:
        flat: The file's declarations.
        manifest: The file's manifest; None without one.
        where: The file's name, for errors.
        flex: Whether Flex ops are accepted.

    Raises:
        ModelError: A signature, an input or an output is missing, unknown or unusable, two signatures do not fit
            together, or the manifest describes something else.
    """
    check = _Check(flat, manifest, where)
    check.signatures(flex)
    if not (manifest and manifest.loss) or "loss" in flat.signatures["train"].outputs:
        check.returns_loss("train")
    check.described()
    weights = ordered(flat.signatures["parameters"].outputs.values(), "a", where)
    parameters = manifest.parameters if manifest else tuple(Parameter(t.name, t.shape) for t in weights)
    check.parameters(weights, parameters)
    check.optional(parameters)
    check.random_states()
    return parameters


def check_signatures(flat: FlatModel, where: str) -> None:
    """Check the required signatures of a file without a manifest; see `check_contract`."""
    _Check(flat, None, where).signatures(flex=False)


@dataclass(frozen=True, eq=False)
class _Check:
    """The checks of one file; each raises a `ModelError`."""

    flat: FlatModel
    manifest: Manifest | None
    where: str

    def _refuse(self, reason: str) -> NoReturn:
        raise ModelError(f"{self.where}: {reason}")

    def _inputs(self, signature: str) -> dict[str, TensorInfo]:
        return self.flat.signatures[signature].inputs

    def signatures(self, flex: bool) -> None:
        """Check the required signatures and the losses of examples."""
        signatures = self.flat.signatures
        if not flex:
            self._ops()
        for name in REQUIRED:
            if name not in signatures:
                self._refuse(f"no signature {name!r}, found {_names(signatures)}; it is not trainable, {_EXPORT}")
        if self.flat.uninitialized:
            first, count = self.flat.uninitialized[0], len(self.flat.uninitialized)
            self._refuse(f"{count} of its variables have no initial values, the first is {first}; {_EXPORT}")
        self._rows("train", ("x", "y"))
        self._rows("infer", ("x",))
        self._train_inputs()
        self._known("infer", ("x",))
        self._answer("infer")
        taken, inferred = (set(parts(self._inputs(name), "x")) for name in ("train", "infer"))
        if taken != inferred:
            self._refuse(
                f"'train' takes {_texts('x', taken)}, but 'infer' takes {_texts('x', inferred)}; expected the same inputs"
            )
        targets, outputs = set(parts(self._inputs("train"), "y")), set(answers_of(signatures["infer"]))
        if "loss" in signatures:
            self._losses()
        elif targets != outputs:
            self._refuse(
                f"'train' takes {_texts('y', targets)}, 'infer' returns {_texts('logits', outputs)}, and no signature "
                f"'loss' relates them; name each target as its output, such as y_a and logits_a, or {_EXPORT}"
            )

    def _ops(self) -> None:
        called = [ops for name, ops in self.flat.operators.items() if is_called(name)]
        flex = sorted({op for ops in called for op in ops if op.startswith("Flex")})
        if flex and "save" in self.flat.signatures and "checkpoint_path" in self._inputs("save"):
            self._refuse(
                f"has the flex flavour, whose Flex ops ({few(flex)}) LiteRT cannot run; export the model without "
                "flavour='flex', or run the file in TensorFlow 2.19 (docs/export.md)"
            )
        if flex:
            self._refuse(f"contains Flex ops ({few(flex)}) that LiteRT cannot run; {_EXPORT}")

    def _rows(self, signature: str, names: tuple[str, ...]) -> None:
        inputs = self._inputs(signature)
        for name in names:
            tensors = parts(inputs, name)
            if not tensors:
                self._refuse(
                    f"signature {signature!r} has no input {name!r}, found {_names(inputs)}; rename its inputs"
                )
            for part, tensor in tensors.items():
                if not tensor.shape or tensor.dtype not in _NUMBERS:
                    self._refuse(
                        f"input {full(name, part)!r} of {signature!r} is {tensor.form}; expected numbers with the "
                        "batch as the first axis"
                    )

    def _known(self, signature: str, known: tuple[str, ...]) -> None:
        """Check that a signature takes only known inputs, and x or x_<name>, not both."""
        inputs = self._inputs(signature)
        rows = {full(prefix, part) for prefix in ROW_INPUTS if prefix in known for part in parts(inputs, prefix)}
        if unknown := sorted(set(inputs) - rows - set(known)):
            self._refuse(
                f"signature {signature!r} has an unknown input {unknown[0]!r}; expected only {', '.join(known)}"
            )

    def _train_inputs(self) -> None:
        """Check that `train` takes only known and described inputs, and that these are as described."""
        inputs, described = self._inputs("train"), self.manifest.train_inputs if self.manifest else ()
        self._known("train", (*TRAIN_INPUTS, *(each.name for each in described)))
        batch = next(iter(parts(inputs, "x").values())).shape[0]
        for each in described:
            shape = tuple(batch if size is None else size for size in each.shape)
            expected, tensor = TensorInfo(each.name, shape, each.dtype), inputs.get(each.name)
            if tensor != expected:
                found = "missing" if tensor is None else tensor.form
                self._refuse(
                    f"input {each.name!r} of 'train' is {found}, but its manifest declares {expected.form}; {_EXPORT}"
                )

    def _answer(self, signature: str) -> None:
        """Check that an inference signature has a main output, or several, with one row for each example."""
        outputs = [name for name in self.flat.signatures[signature].outputs if not is_one_of(name, ("mask",))]
        if len(outputs) != 1 and not any(is_one_of(name, ("logits",)) for name in outputs):
            self._refuse(
                f"signature {signature!r} should have an output 'logits' or a single output, found {_names(outputs)}"
            )
        for answer in answers_of(self.flat.signatures[signature]).values():
            if answer.dtype != "float32" or not answer.shape:
                self._refuse(
                    f"signature {signature!r} returns {answer.form}; expected float32 with the batch as the first axis"
                )

    def _losses(self) -> None:
        """Check the signature `loss`, which computes each example's loss from the outputs of `infer`."""
        signature, infer = self.flat.signatures["loss"], self.flat.signatures["infer"]
        rows = {name: tensor for name, tensor in self._inputs("train").items() if is_one_of(name, ROW_INPUTS)}
        given = {**infer.outputs, **rows}
        for name, tensor in signature.inputs.items():
            if name not in given:
                self._refuse(
                    f"signature 'loss' has an unknown input {name!r}; expected outputs of 'infer' and x and y of 'train'"
                )
            if not tensor.has_rows_of(given[name]):
                self._refuse(f"input {name!r} of 'loss' is {tensor.form}, but elsewhere {given[name].form}; {_EXPORT}")
        losses = signature.outputs.get("losses")
        if losses is None or losses.dtype != "float32" or len(losses.shape) != 1:
            self._refuse(
                f"signature 'loss' should return 'losses', float32 [batch], found {_forms(signature.outputs)}; {_EXPORT}"
            )

    def returns_loss(self, signature: str) -> None:
        """Check that a training signature returns its loss."""
        outputs = self.flat.signatures[signature].outputs
        loss = outputs.get("loss")
        if loss is None or loss.dtype != "float32" or prod(loss.shape) != 1:
            self._refuse(
                f"signature {signature!r} has no output 'loss', a float32 number, found {_forms(outputs)}; return the "
                "batch's mean loss"
            )

    def described(self) -> None:
        """Check that the manifest, if there is one, names the inputs and outputs of the signatures."""
        if self.manifest is None:
            return
        inputs, outputs = set(parts(self._inputs("train"), "x")), set(answers_of(self.flat.signatures["infer"]))
        names = self.manifest.inputs
        described = {"" if name == "x" and len(names) == 1 else name for name in names}
        if described != inputs:
            self._refuse(
                f"'train' takes {_texts('x', inputs)}, but its manifest declares {_texts('x', described)}; {_EXPORT}"
            )
        if (named := {output.name for output in self.manifest.outputs}) != outputs:
            self._refuse(
                f"'infer' returns {_texts('logits', outputs)}, but its manifest declares {_texts('logits', named)}; "
                f"{_EXPORT}"
            )
        for output in self.manifest.outputs:
            if output.loss not in (None, NO_LOSS, *LOSSES) and "loss" not in self.flat.signatures:
                self._refuse(f"its loss {output.loss} needs the signature 'loss', which is missing; {_EXPORT}")
            if output.mask and full("mask", output.name) not in self.flat.signatures["infer"].outputs:
                self._refuse(f"'infer' returns no {full('mask', output.name)!r}; {_EXPORT}")

    def parameters(self, weights: Sequence[TensorInfo], parameters: Sequence[Parameter]) -> None:
        """Check that the weights and the optimizer's slots can be read and written back."""
        for tensor in weights:
            if tensor.dtype != "float32" or min(tensor.shape, default=1) < 0:
                self._refuse(f"parameter {tensor.name} is {tensor.form}; expected float32 of a fixed shape")
        if [tensor.shape for tensor in weights] != [p.shape for p in parameters]:
            self._refuse(f"the manifest's shapes differ from the signature 'parameters'; {_EXPORT}")
        self._pair("parameters", "restore")
        if "optimizer_state" in self.flat.signatures:
            self._pair("optimizer_state", "restore_optimizer_state")
        if self.flat.unrestored:
            self._refuse(
                f"'train' changes the variable {self.flat.unrestored[0]}, which neither 'restore' nor "
                "'restore_optimizer_state' sets, so all devices would share it; add it to 'optimizer_state' and "
                f"'restore_optimizer_state' as s0..sM, or {_EXPORT}"
            )

    def _pair(self, reader: str, writer: str) -> None:
        signatures = self.flat.signatures
        if signatures[reader].outputs != (signatures[writer].inputs if writer in signatures else {}):
            self._refuse(f"the inputs of {writer!r} differ from the outputs of {reader!r}; make them equal")

    def random_states(self) -> None:
        """Check that the manifest's random states are slots of the right form."""
        signature = self.flat.signatures.get("optimizer_state")
        forms = {t.name: t.form for t in signature.outputs.values()} if signature else {}
        for i in self.manifest.random_states if self.manifest else ():
            if forms.get(f"s{i}") != "int32 [2]":
                self._refuse(f"its manifest declares s{i} as a random state; expected a slot int32 [2]; {_EXPORT}")

    def optional(self, parameters: Sequence[Parameter]) -> None:
        """Check the signatures of groups, of the head, and of the gradient offset."""
        for name, signature in self.flat.signatures.items():
            if name.startswith("train_") and parts_of(name.removeprefix("train_")):
                self._takes(signature, self._inputs("train"), f"signature {name!r} should take the inputs of 'train'")
                self.returns_loss(name)
        if any(name in self.flat.signatures for name in ON_EMBEDDINGS):
            self._embeddings()
        if "set_gradient_offset" in self.flat.signatures:
            self._offset([p for p in parameters if p.role == "trainable"])

    def _embeddings(self) -> None:
        """Check `embed`, and the head's signatures, which need it."""
        signatures = self.flat.signatures
        missing = [name for name in ON_EMBEDDINGS if name not in signatures]
        if missing and missing != ["head_train", "head_infer"]:
            self._refuse(
                f"expected all of {', '.join(ON_EMBEDDINGS)}, or only embed; found no signature {missing[0]!r}"
            )
        rule = "signature 'embed' should take the inputs of 'infer'"
        self._takes(signatures["embed"], self._inputs("infer"), rule)
        embedding = signatures["embed"].outputs.get("embedding")
        if embedding is None:
            self._refuse(f"signature 'embed' has no output 'embedding', found {_names(signatures['embed'].outputs)}")
        if missing:
            return
        rest = {name: tensor for name, tensor in self._inputs("train").items() if not is_one_of(name, ("x",))}
        rule = "signature 'head_train' should take the inputs of 'train', with the embedding instead of x"
        self._takes(signatures["head_train"], {"embedding": self._embedded("train", embedding), **rest}, rule)
        self.returns_loss("head_train")
        rule = "signature 'head_infer' should take only the embedding"
        self._takes(signatures["head_infer"], {"embedding": self._embedded("infer", embedding)}, rule)
        self._answer("head_infer")
        of_head, of_all = answers_of(signatures["head_infer"]), answers_of(signatures["infer"])
        if of_head.keys() != of_all.keys():
            self._refuse("'head_infer' and 'infer' return different outputs; expected the same")
        for name, answer in of_all.items():
            if not of_head[name].has_rows_of(answer):
                self._refuse(f"'head_infer' returns {of_head[name].form}, 'infer' {answer.form}; expected equal shapes")

    def _embedded(self, signature: str, embedding: TensorInfo) -> TensorInfo:
        """Return the embedding as an input with the rows of x, because an output may not declare its rows."""
        x = next(iter(parts(self._inputs(signature), "x").values()))
        return replace(embedding, shape=(*x.shape[:1], *embedding.shape[1:]))

    def _offset(self, trainable: Sequence[Parameter]) -> None:
        if "mu" not in self._inputs("train"):
            self._refuse(
                "has a signature 'set_gradient_offset' but 'train' no input 'mu'; steps should use g + mu w + b"
            )
        tensors = ordered(self._inputs("set_gradient_offset").values(), "b", self.where)
        if len(tensors) != len(trainable):
            self._refuse(
                f"signature 'set_gradient_offset' takes {len(tensors)} tensors; expected one for each of the "
                f"{len(trainable)} trainable parameters"
            )
        for tensor, parameter in zip(tensors, trainable, strict=True):
            if (tensor.shape, tensor.dtype) != (parameter.shape, "float32"):
                self._refuse(
                    f"input {tensor.name} of 'set_gradient_offset' is {tensor.form}; expected float32 "
                    f"{shape_text(parameter.shape)}, as the parameter {parameter.name}"
                )

    def _takes(self, signature: Signature, expected: Mapping[str, TensorInfo], rule: str) -> None:
        if set(signature.inputs) != set(expected):
            self._refuse(f"{rule}: {_names(expected)}; found {_names(signature.inputs)}")
        for key, tensor in expected.items():
            if signature.inputs[key] != tensor:
                self._refuse(f"{rule}; its {key!r} is {signature.inputs[key].form}, expected {tensor.form}")


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _forms(tensors: Mapping[str, TensorInfo]) -> str:
    return ", ".join(f"{tensor.name} {tensor.form}" for tensor in tensors.values()) or "none"


def _texts(prefix: str, names: Iterable[str]) -> str:
    return ", ".join(full(prefix, name) for name in sorted(names)) or "none"
