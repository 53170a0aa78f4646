"""Custom gradients of a module, which the graph of its forward pass does not contain."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from odt_sim.errors import ExportError

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
