"""The signature contract of a trainable `.tflite` file, and its check."""

import re
from collections.abc import Iterable, Sequence
from math import prod

from odt_sim._support.text import few
from odt_sim.errors import ModelError
from odt_sim.model.flatbuffer import FlatModel, Signature, TensorInfo
from odt_sim.model.manifest import LOSSES, NO_LOSS, Manifest, Parameter
from odt_sim.model.names import ROW_INPUTS, full, is_one_of, parts
from odt_sim.model.train_inputs import TRAIN_INPUTS as TRAIN_INPUTS
from odt_sim.model.train_inputs import TrainInput

REQUIRED = ("train", "infer", "parameters", "restore")
OPTIONAL = (
    *("optimizer_state", "restore_optimizer_state", "set_gradient_offset"),
    *("embed", "head_train", "head_infer", "loss"),
    *("schedule", "finalize"),
)
_NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
_EXPORT = "export it with odt_sim.export.export_model"


def is_called(signature: str) -> bool:
    """Return whether devices call a signature of this name; others may stay in a file and are never run."""
    return signature in (*REQUIRED, *OPTIONAL) or signature.startswith("train_")


def check_signatures(flat: FlatModel, where: str, *, flex: bool = False, further: Sequence[TrainInput] = ()) -> None:
    """Check the required signatures, with their inputs and outputs.

    Args:
        flat: The file's declarations.
        where: The file's name, for errors.
        flex: Whether Flex ops are accepted.
        further: The inputs of `train` that the manifest describes.

    Raises:
        ModelError: A signature, an input or an output is missing, unknown or unusable.
    """
    if not flex:
        _check_ops(flat, where)
    for name in REQUIRED:
        if name not in flat.signatures:
            found = ", ".join(flat.signatures) or "none"
            raise ModelError(f"{where}: no signature {name!r}, found {found}; it is not trainable, {_EXPORT}")
    if flat.uninitialized:
        first, count = flat.uninitialized[0], len(flat.uninitialized)
        raise ModelError(f"{where}: {count} of its variables have no initial values, the first is {first}; {_EXPORT}")
    _check_rows(flat, "train", ("x", "y"), where)
    _check_rows(flat, "infer", ("x",), where)
    _check_train_inputs(flat, further, where)
    _check_known(flat, "infer", ("x",), where)
    check_answer(flat, "infer", where)
    taken, inferred = (set(parts(flat.signatures[name].inputs, "x")) for name in ("train", "infer"))
    if taken != inferred:
        raise ModelError(
            f"{where}: 'train' takes {_texts('x', taken)}, but 'infer' takes {_texts('x', inferred)}; expected the "
            "same inputs"
        )
    if "loss" in flat.signatures:
        _check_losses(flat, where)
    elif (targets := set(parts(flat.signatures["train"].inputs, "y"))) != (
        outputs := set(answers_of(flat.signatures["infer"]))
    ):
        raise ModelError(
            f"{where}: 'train' takes {_texts('y', targets)}, 'infer' returns {_texts('logits', outputs)}, and no "
            f"signature 'loss' relates them; name each target as its output, such as y_a and logits_a, or {_EXPORT}"
        )


def check_described(flat: FlatModel, manifest: Manifest, where: str) -> None:
    """Check that the manifest names the inputs and outputs of the signatures.

    Raises:
        ModelError: A name, the signature `loss` or a mask is missing.
    """
    inputs, outputs = set(parts(flat.signatures["train"].inputs, "x")), set(answers_of(flat.signatures["infer"]))
    described = {"" if name == "x" and len(manifest.inputs) == 1 else name for name in manifest.inputs}
    if described != inputs:
        raise ModelError(
            f"{where}: 'train' takes {_texts('x', inputs)}, but its manifest declares {_texts('x', described)}; {_EXPORT}"
        )
    if (named := {output.name for output in manifest.outputs}) != outputs:
        raise ModelError(
            f"{where}: 'infer' returns {_texts('logits', outputs)}, but its manifest declares "
            f"{_texts('logits', named)}; {_EXPORT}"
        )
    for output in manifest.outputs:
        if output.loss not in (None, NO_LOSS, *LOSSES) and "loss" not in flat.signatures:
            raise ModelError(f"{where}: its loss {output.loss} needs the signature 'loss', which is missing; {_EXPORT}")
        if output.mask and full("mask", output.name) not in flat.signatures["infer"].outputs:
            raise ModelError(f"{where}: 'infer' returns no {full('mask', output.name)!r}; {_EXPORT}")


def _check_train_inputs(flat: FlatModel, described: Sequence[TrainInput], where: str) -> None:
    """Check that `train` takes only known and described inputs, and that these are as described.

    Raises:
        ModelError: An input is unknown or missing, or has another shape or dtype.
    """
    inputs = flat.signatures["train"].inputs
    _check_known(flat, "train", (*TRAIN_INPUTS, *(each.name for each in described)), where)
    batch = next(iter(parts(inputs, "x").values())).shape[0]
    for each in described:
        shape = tuple(batch if size is None else size for size in each.shape)
        found = inputs.get(each.name)
        if found is None or (found.shape, found.dtype) != (shape, each.dtype):
            text = "missing" if found is None else f"{found.dtype} {shape_text(found.shape)}"
            raise ModelError(
                f"{where}: input {each.name!r} of 'train' is {text}, but its manifest declares {each.dtype} "
                f"{shape_text(shape)}; " + _EXPORT
            )


def check_parameters(flat: FlatModel, parameters: tuple[Parameter, ...], where: str) -> None:
    """Check that the weights and the optimizer's slots can be read and written back.

    Args:
        flat: The file's declarations.
        parameters: The weights in the order `a0..aN`.
        where: The file's name, for errors.

    Raises:
        ModelError: Two signatures do not fit together, a weight is not float32 of a fixed shape, or training changes a
            variable that no signature sets.
    """
    declared = ordered(flat.signatures["parameters"].outputs.values(), "a", where)
    for tensor in declared:
        if tensor.dtype != "float32" or min(tensor.shape, default=1) < 0:
            shape = shape_text(tensor.shape)
            raise ModelError(
                f"{where}: parameter {tensor.name} is {tensor.dtype} {shape}; expected float32 of a fixed shape"
            )
    if [t.shape for t in declared] != [p.shape for p in parameters]:
        raise ModelError(f"{where}: the manifest's shapes differ from the signature 'parameters'; {_EXPORT}")
    _check_pair(flat, "parameters", "restore", where)
    if "optimizer_state" in flat.signatures:
        _check_pair(flat, "optimizer_state", "restore_optimizer_state", where)
    if flat.unrestored:
        raise ModelError(
            f"{where}: 'train' changes the variable {flat.unrestored[0]}, which neither 'restore' nor "
            "'restore_optimizer_state' sets, so all devices would share it; add it to 'optimizer_state' and "
            f"'restore_optimizer_state' as s0..sM, or {_EXPORT}"
        )


def check_random_states(flat: FlatModel, random_states: Iterable[int], where: str) -> None:
    """Check that the manifest's random states are slots of the right form.

    Raises:
        ModelError: One is not a slot, or has another form.
    """
    signature = flat.signatures.get("optimizer_state")
    slots = {t.name: (t.shape, t.dtype) for t in signature.outputs.values()} if signature else {}
    forms = (((2,), "int32"), ((2,), "int64"))  # int64 in files exported before 22 November 2026
    wrong = [i for i in random_states if slots.get(f"s{i}") not in forms]
    if wrong:
        raise ModelError(
            f"{where}: its manifest declares s{wrong[0]} as a random state; expected a slot int32 [2]; {_EXPORT}"
        )


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


def check_loss(flat: FlatModel, signature: str, where: str) -> None:
    """Check that a training signature returns its loss.

    Raises:
        ModelError: The output `loss` is missing or not one float32 number.
    """
    outputs = flat.signatures[signature].outputs
    loss = outputs.get("loss")
    if loss is None or loss.dtype != "float32" or prod(loss.shape) != 1:
        found = ", ".join(f"{t.name} {t.dtype} {shape_text(t.shape)}" for t in outputs.values()) or "none"
        raise ModelError(
            f"{where}: signature {signature!r} has no output 'loss', a float32 number, found {found}; "
            "return the batch's mean loss"
        )


def answers_of(signature: Signature) -> dict[str, TensorInfo]:
    """Return the main outputs of an inference signature by their names in the manifest.

    These are `{"": output}` for `logits`, `embedding` or the only output, or one for each `logits_<name>`.
    """
    outputs = {name: tensor for name, tensor in signature.outputs.items() if not is_one_of(name, ("mask",))}
    if several := parts(outputs, "logits"):
        return several
    return {"": outputs.get("embedding") or next(iter(outputs.values()))}


def check_answer(flat: FlatModel, signature: str, where: str) -> None:
    """Check that an inference signature has a main output, or several, with one row for each example.

    Raises:
        ModelError: The main output is ambiguous or missing, or has another form.
    """
    outputs = [name for name in flat.signatures[signature].outputs if not is_one_of(name, ("mask",))]
    if len(outputs) != 1 and not any(is_one_of(name, ("logits",)) for name in outputs):
        found = ", ".join(outputs) or "none"
        raise ModelError(
            f"{where}: signature {signature!r} should have an output 'logits' or a single output, found {found}"
        )
    for answer in answers_of(flat.signatures[signature]).values():
        if answer.dtype != "float32" or not answer.shape:
            raise ModelError(
                f"{where}: signature {signature!r} returns {answer.dtype} {shape_text(answer.shape)}; "
                "expected float32 with the batch as the first axis"
            )


def _check_losses(flat: FlatModel, where: str) -> None:
    """Check the signature `loss`, which computes each example's loss from the outputs of `infer`."""
    signature, infer, train = flat.signatures["loss"], flat.signatures["infer"], flat.signatures["train"]
    given = {**infer.outputs, **{name: t for name, t in train.inputs.items() if is_one_of(name, ROW_INPUTS)}}
    for name, tensor in signature.inputs.items():
        if name not in given:
            raise ModelError(
                f"{where}: signature 'loss' has an unknown input {name!r}; expected outputs of 'infer' and x and y of 'train'"
            )
        if (tensor.shape[1:], tensor.dtype) != (given[name].shape[1:], given[name].dtype):
            raise ModelError(
                f"{where}: input {name!r} of 'loss' is {tensor.dtype} {shape_text(tensor.shape)}, but elsewhere "
                f"{given[name].dtype} {shape_text(given[name].shape)}; {_EXPORT}"
            )
    losses = signature.outputs.get("losses")
    if losses is None or losses.dtype != "float32" or len(losses.shape) != 1:
        found = ", ".join(f"{t.name} {t.dtype} {shape_text(t.shape)}" for t in signature.outputs.values()) or "none"
        raise ModelError(f"{where}: signature 'loss' should return 'losses', float32 [batch], found {found}; {_EXPORT}")


def _texts(prefix: str, names: Iterable[str]) -> str:
    return ", ".join(full(prefix, name) for name in sorted(names)) or "none"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape for a message; a damaged file may declare very many axes."""
    return str(list(shape)) if len(shape) <= 8 else f"of {len(shape)} axes"


def _check_ops(flat: FlatModel, where: str) -> None:
    called = [ops for name, ops in flat.operators.items() if is_called(name)]
    flex = sorted({op for ops in called for op in ops if op.startswith("Flex")})
    if not flex:
        return
    if "save" in flat.signatures and "checkpoint_path" in flat.signatures["save"].inputs:
        raise ModelError(
            f"{where}: has the flex flavour, whose Flex ops ({few(flex)}) LiteRT cannot run; "
            "export the model without flavour='flex', or run the file in TensorFlow 2.19 (docs/export.md)"
        )
    raise ModelError(f"{where}: contains Flex ops ({few(flex)}) that LiteRT cannot run; {_EXPORT}")


def _check_rows(flat: FlatModel, signature: str, names: tuple[str, ...], where: str) -> None:
    inputs = flat.signatures[signature].inputs
    for name in names:
        tensors = parts(inputs, name)
        if not tensors:
            found = ", ".join(inputs) or "none"
            raise ModelError(
                f"{where}: signature {signature!r} has no input {name!r}, found {found}; rename its inputs"
            )
        for part, tensor in tensors.items():
            if not tensor.shape or tensor.dtype not in _NUMBERS:
                raise ModelError(
                    f"{where}: input {full(name, part)!r} of {signature!r} is {tensor.dtype} {shape_text(tensor.shape)}; "
                    "expected numbers with the batch as the first axis"
                )


def _check_known(flat: FlatModel, signature: str, known: tuple[str, ...], where: str) -> None:
    """Check that a signature takes only known inputs, and x or x_<name>, not both."""
    inputs = flat.signatures[signature].inputs
    rows = {full(prefix, part) for prefix in ROW_INPUTS if prefix in known for part in parts(inputs, prefix)}
    unknown = sorted(set(inputs) - rows - set(known))
    if unknown:
        raise ModelError(
            f"{where}: signature {signature!r} has an unknown input {unknown[0]!r}; expected only {', '.join(known)}"
        )


def _check_pair(flat: FlatModel, reader: str, writer: str, where: str) -> None:
    read = flat.signatures[reader].outputs.values()
    written = flat.signatures[writer].inputs.values() if writer in flat.signatures else ()
    if {(t.name, t.shape, t.dtype) for t in read} != {(t.name, t.shape, t.dtype) for t in written}:
        raise ModelError(f"{where}: the inputs of {writer!r} differ from the outputs of {reader!r}; make them equal")
