"""Refusals of PyTorch modules that cannot be exported, in one line each."""

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from odt_sim.errors import ExportError


def check_module(module: Any) -> None:
    """Refuse modules that `torch.export` fails on without naming the cause.

    Raises:
        ExportError: The module is TorchScript or quantized, or has uninitialized or complex weights, spectral
            normalization, or a BatchNorm that counts batches.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        raise ExportError("torch: the module is TorchScript, which cannot be traced; pass the original module")
    for path, part in module.named_modules():
        where = f"{type(part).__name__} of module {path!r}"
        if "quantized" in type(part).__module__:
            raise ExportError(
                f"torch: {where} is quantized and computes with integers, which do not train; pass the module from "
                "before convert or quantize_dynamic, and quantize the trained file with odt-sim deploy"
            )
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if any(map(torch.nn.parameter.is_lazy, own)):
            raise ExportError(f"torch: {where} has no weights yet; call the module once on an example first")
        if _has_spectral_norm(part):
            raise ExportError(
                f"torch: {where} has spectral normalization, whose vectors change in each step, but a file only "
                "supports the statistics of BatchNorm; use weight_norm, or continue training without it: "
                "torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.remove_spectral_norm"
            )
        names = [name for name, parameter in part.named_parameters(recurse=False) if parameter.is_complex()]
        if names:
            raise ExportError(
                f"torch: {names[0]!r} of {where} is complex, but a file's weights are real; store it as a parameter "
                "torch.view_as_real(weight), and read it with torch.view_as_complex"
            )
        if (
            isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
            and part.track_running_stats
            and part.momentum is None
        ):
            raise ExportError(f"torch: {where} has momentum=None, which counts batches; set a number, such as 0.1")


def _has_spectral_norm(part: Any) -> bool:
    """Return whether a module is the parametrization of spectral normalization, or has its hook (arXiv:1802.05957)."""
    hooks = part._forward_pre_hooks.values()
    return any(type(each).__name__ in ("_SpectralNorm", "SpectralNorm") for each in (part, *hooks))


def untraceable(module: Any, error: Exception) -> ExportError:
    """Return the error for a module that `torch.export` cannot trace."""
    return ExportError(f"torch: torch.export cannot trace {type(module).__name__} ({_reason(error)})")


def _reason(error: Exception) -> str:
    if _is_of_packed_sequence(error):
        return (
            "sizes of packed sequences depend on their lengths; pass the padded sequence to the layer, and mask its "
            "outputs by the lengths"
        )
    text = " ".join(str(error).split())
    if "data-dependent" in text:
        caused = re.search(r"Caused by: \((\S+ in \w+)\)", text)
        where = f", in {caused[1].rpartition('/')[2]}" if caused else ""
        return (
            f"a branch or a size depends on the values of a tensor{where}; use torch.where, or compute it from shapes"
        )
    return text[:300]


def _is_of_packed_sequence(error: Exception) -> bool:
    from torch.nn.utils.rnn import PackedSequence

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(isinstance(value, PackedSequence) for frame in frames for value in frame.f_locals.values()) or any(
        frame.f_code.co_name in ("pack_padded_sequence", "pad_packed_sequence") for frame in frames
    )


def check_outputs(graphs: dict[bool, Any], name: str) -> None:
    """Refuse a module whose number of outputs depends on the mode, such as one with auxiliary outputs in training.

    Args:
        graphs: The `ExportedProgram` of each mode, by whether it is for training.
        name: The module's class.

    Raises:
        ExportError: The numbers of outputs differ.
    """
    counts = {training: len(exported.graph_signature.user_outputs) for training, exported in graphs.items()}
    if counts[True] != counts[False]:
        raise ExportError(
            f"torch: {name} returns {counts[True]} outputs in training and {counts[False]} in evaluation; turn off "
            "auxiliary outputs, such as with aux_logits=False, or return the same in both modes"
        )


TOLERANCE = 1e-3
"""The largest allowed difference of two gradients, relative to the largest gradient."""


@contextmanager
def own_gradients(module: Any) -> Iterator[list[str]]:
    """Collect custom backward functions and hooks, which may change gradients, while a module is traced.

    Yields:
        Their names; the list is complete once the module is traced.
    """
    import torch

    found = [
        f"a hook of parameter {name!r}" for name, parameter in module.named_parameters() if parameter._backward_hooks
    ]
    function: Any = torch.autograd.Function
    inherited, register = function.__dict__["apply"], torch.Tensor.register_hook

    def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            found.append(f"{cls.__name__}.backward")
        return inherited.__get__(None, cls)(*args, **kwargs)  # a class method, written in C since PyTorch 2.14

    def registered(tensor: Any, hook: Any) -> Any:
        found.append("a hook of a tensor")
        return register(tensor, hook)

    function.apply, torch.Tensor.register_hook = classmethod(applied), registered
    try:
        yield found
    finally:
        function.apply, torch.Tensor.register_hook = inherited, register


def check_gradients(module: Any, given: inspect.BoundArguments, traced: Any, names: Sequence[str]) -> None:
    """Refuse a module whose gradients differ from those of its traced graph.

    Args:
        module: The module, in training mode.
        given: An example of its inputs.
        traced: The module's graph, as a module.
        names: The names of functions and hooks that may change its gradients.

    Raises:
        ExportError: The gradients differ.
    """
    import torch

    given = _spread(given)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    learned = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    copies = {name: parameter.detach().clone().requires_grad_() for name, parameter in learned.items()}  # without hooks
    expected = _gradients(_outputs(module, given), list(learned.values()))
    found = _gradients(
        _outputs(lambda *a, **b: torch.func.functional_call(traced, copies, a, b), given), list(copies.values())
    )
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    close = TOLERANCE * max((float(gradient.abs().max()) for gradient in expected if gradient.numel()), default=0.0)
    for name, wanted, gradient in zip(learned, expected, found, strict=True):
        if not torch.allclose(gradient, wanted, rtol=0, atol=close, equal_nan=True):
            raise ExportError(
                f"torch: the gradient of {name!r} differs from that of forward, because of "
                f"{', '.join(dict.fromkeys(names))}, but a file uses that of forward; express it with detach there: "
                "`x + (f(x) - x).detach()` has the gradient of x, "
                "and `2 * x.detach() - x` the reversed one"
            )


def _spread(given: inspect.BoundArguments) -> inspect.BoundArguments:
    """Return inputs with noise on constant ones: at zeros, a function may have the gradients of `forward`.

    The noise is positive, for modules that take the logarithm of an example of ones.
    """
    import torch
    from torch.utils._pytree import tree_map

    generator = torch.Generator().manual_seed(0)

    def noisy(x: Any) -> Any:
        constant = isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() and bool((x == x.min()).all())
        return x + 2 * torch.rand(x.shape, generator=generator, dtype=x.dtype) if constant else x

    return inspect.BoundArguments(given.signature, tree_map(noisy, given.arguments))


def _outputs(function: Callable[..., Any], given: inspect.BoundArguments) -> list[Any]:
    """Return the results of a function that require gradients; each call uses the same random seed."""
    import torch
    from torch.utils._pytree import tree_leaves

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        leaves = tree_leaves(function(*given.args, **given.kwargs))
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]


def _gradients(outputs: Sequence[Any], learned: Sequence[Any]) -> list[Any]:
    """Return the gradients of a weighted sum of outputs."""
    import torch

    if not outputs:
        return [torch.zeros_like(parameter) for parameter in learned]
    weights = [torch.arange(1.0, x.numel() + 1).cos().reshape(x.shape) for x in outputs]
    return list(torch.autograd.grad(outputs, learned, weights, materialize_grads=True))
