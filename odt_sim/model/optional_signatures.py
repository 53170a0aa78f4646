"""The check of the optional signatures of a trainable `.tflite` file.

| signature | inputs | outputs |
|---|---|---|
| `train_<group>` | as `train` | as `train`; trains one group of parameters, or several joined by `_` |
| `embed` | `x` | `embedding`, the input of the head; several inputs are `x_<name>` here, too |
| `head_train` | as `train`, with `embedding` instead of `x` | as `train`; trains the head |
| `head_infer` | `embedding` | as `infer` |
| `set_gradient_offset` | `b0..bK`, one for each trainable parameter | any |
| `schedule` | `step`, counted from 0 | `learning_rate` of the step |
| `finalize` | | any; ends a training: sets the weights to their moving averages |

With `set_gradient_offset`, every training step takes `mu` and uses g + mu w + b instead of the gradient g. The last two
are used only if the manifest's optimizer has a `schedule`, or `use_ema`. Signatures with other names are not checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from odt_sim.errors import ModelError
from odt_sim.model.contract import answers_of, check_answer, check_loss, ordered, shape_text
from odt_sim.model.flatbuffer import FlatModel, Signature, TensorInfo
from odt_sim.model.manifest import GROUPS, Parameter
from odt_sim.model.names import is_one_of, parts

ON_EMBEDDINGS = ("embed", "head_train", "head_infer")


def parts_of(group: str) -> tuple[str, ...]:
    """Return the parameter groups in a name such as `body_norm`; empty for an unknown name."""
    parts = tuple(group.split("_"))
    return parts if set(parts) <= set(GROUPS) else ()


def check_optional(flat: FlatModel, parameters: Sequence[Parameter], where: str) -> None:
    """Check the optional signatures of a file with valid required ones.

    Args:
        flat: The file's declarations.
        parameters: The weights in the order `a0..aN`.
        where: The file's name, for errors.

    Raises:
        ModelError: An input or an output is missing, unknown or of another shape than elsewhere.
    """
    train = flat.signatures["train"].inputs
    for name, signature in flat.signatures.items():
        if name.startswith("train_") and parts_of(name.removeprefix("train_")):
            _check_inputs(signature, train, f"{where}: signature {name!r} should take the inputs of 'train'")
            check_loss(flat, name, where)
    if any(name in flat.signatures for name in ON_EMBEDDINGS):
        _check_embeddings(flat, where)
    if "set_gradient_offset" in flat.signatures:
        _check_offset(flat, parameters, where)


def _check_embeddings(flat: FlatModel, where: str) -> None:
    """Check `embed`, and the head's signatures, which need it."""
    missing = [name for name in ON_EMBEDDINGS if name not in flat.signatures]
    if missing and missing != ["head_train", "head_infer"]:
        raise ModelError(
            f"{where}: expected all of {', '.join(ON_EMBEDDINGS)}, or only embed; found no signature {missing[0]!r}"
        )
    train, infer = flat.signatures["train"], flat.signatures["infer"]
    embed = flat.signatures["embed"]
    _check_inputs(embed, infer.inputs, f"{where}: signature 'embed' should take the inputs of 'infer'")
    embedding = embed.outputs.get("embedding")
    if embedding is None:
        raise ModelError(f"{where}: signature 'embed' has no output 'embedding', found {_names(embed.outputs)}")
    if missing:
        return
    rows = next(iter(parts(train.inputs, "x").values()))
    others = {name: tensor for name, tensor in train.inputs.items() if not is_one_of(name, ("x",))}
    expected = {"embedding": _in_place_of(rows, embedding), **others}
    rule = f"{where}: signature 'head_train' should take the inputs of 'train', with the embedding instead of x"
    _check_inputs(flat.signatures["head_train"], expected, rule)
    check_loss(flat, "head_train", where)
    expected = {"embedding": _in_place_of(next(iter(parts(infer.inputs, "x").values())), embedding)}
    rule = f"{where}: signature 'head_infer' should take only the embedding"
    _check_inputs(flat.signatures["head_infer"], expected, rule)
    check_answer(flat, "head_infer", where)
    of_head, of_all = answers_of(flat.signatures["head_infer"]), answers_of(infer)
    if of_head.keys() != of_all.keys():
        raise ModelError(f"{where}: 'head_infer' and 'infer' return different outputs; expected the same")
    for name, answer in of_all.items():
        found = of_head[name]
        if (found.shape[1:], found.dtype) != (answer.shape[1:], answer.dtype):
            raise ModelError(
                f"{where}: 'head_infer' returns {found.dtype} {shape_text(found.shape)}, 'infer' {answer.dtype} "
                f"{shape_text(answer.shape)}; expected equal shapes"
            )


def _in_place_of(x: TensorInfo, embedding: TensorInfo) -> TensorInfo:
    """Return the embedding as an input with the rows of x, because an output may not declare its rows."""
    return replace(embedding, shape=(*x.shape[:1], *embedding.shape[1:]))


def _check_offset(flat: FlatModel, parameters: Sequence[Parameter], where: str) -> None:
    if "mu" not in flat.signatures["train"].inputs:
        raise ModelError(
            f"{where}: has a signature 'set_gradient_offset' but 'train' no input 'mu'; steps should use g + mu w + b"
        )
    trainable = [p for p in parameters if p.role == "trainable"]
    tensors = ordered(flat.signatures["set_gradient_offset"].inputs.values(), "b", where)
    if len(tensors) != len(trainable):
        raise ModelError(
            f"{where}: signature 'set_gradient_offset' takes {len(tensors)} tensors; expected one for each of the "
            f"{len(trainable)} trainable parameters"
        )
    for tensor, parameter in zip(tensors, trainable, strict=True):
        if (tensor.shape, tensor.dtype) != (parameter.shape, "float32"):
            raise ModelError(
                f"{where}: input {tensor.name} of 'set_gradient_offset' is {tensor.dtype} {shape_text(tensor.shape)}; "
                f"expected float32 {shape_text(parameter.shape)}, as the parameter {parameter.name}"
            )


def _check_inputs(signature: Signature, expected: Mapping[str, TensorInfo], rule: str) -> None:
    if set(signature.inputs) != set(expected):
        raise ModelError(f"{rule}: {_names(expected)}; found {_names(signature.inputs)}")
    for key, tensor in expected.items():
        found = signature.inputs[key]
        if (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
            raise ModelError(
                f"{rule}; its {key!r} is {found.dtype} {shape_text(found.shape)}, expected {tensor.dtype} "
                f"{shape_text(tensor.shape)}"
            )


def _names(tensors: Mapping[str, TensorInfo]) -> str:
    return ", ".join(tensors) or "none"
