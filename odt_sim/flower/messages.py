"""Messages between a server and its nodes.

Flower's strategies send and average weights, one array per parameter. For odt_sim's strategies, tensors are sent as arrays
and the rest as JSON.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from odt_sim.errors import StrategyError
from odt_sim.model.tensors import array_of, read_only
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights
from odt_sim.persistence.versions import Version
from odt_sim.simulation.executors.job import Message, Task, Trained
from odt_sim.simulation.run.start import initial_weights
from odt_sim.strategies.base import Strategy, Tensors, Update

ACTION = "odt_sim"
"""Name of the nodes' actions for odt_sim's strategies; actions without a name serve Flower's strategies."""

_BY_DEVICE = ("excluded", "stateful", "utilities")
_NUMBERS = ("weight", "loss_sum", "loss_weight", "bytes_up", "train_calls", "infer_calls", "single")


def initial_arrays(model: TrainableModel, strategy: Strategy) -> ArrayRecord:
    """Return the initial arrays for a Flower strategy: the exported weights that travel, by name.

    Args:
        model: The model.
        strategy: The strategy of the devices.

    Raises:
        StrategyError: The strategy's server sends more than weights, or nothing.
    """
    return packed(shared_weights(model, strategy))


def shared_weights(model: TrainableModel, strategy: Strategy) -> Weights:
    """Return the exported weights that travel.

    Raises:
        StrategyError: The strategy's server sends more than weights, or nothing.
    """
    broadcast = strategy.init(initial_weights(model)).broadcast
    weights = broadcast.get("weights")
    if set(broadcast) != {"weights"} or not isinstance(weights, Weights) or not weights.layout.size:
        raise StrategyError(
            f"strategy {strategy.name}: its server sends {', '.join(sorted(broadcast)) or 'nothing'}, but Flower "
            "strategies only send weights; run it with odt_sim.flower.server_app"
        )
    return weights


def packed(weights: Weights) -> ArrayRecord:
    """Return weights as a record with one array per parameter."""
    names = weights.layout.names
    return ArrayRecord({name: Array(tensor) for name, tensor in zip(names, weights.tensors(), strict=True)})


def weights_of(model: TrainableModel, arrays: ArrayRecord) -> Weights:
    """Return the weights in a record, such as a strategy's `result.arrays`, in the model's order as float32.

    Args:
        model: The model.
        arrays: One array per parameter that travels, by name.

    Raises:
        ModelError: A shape does not fit.
        StrategyError: The record contains a name that is not a parameter of the model.
    """
    unknown = sorted(set(arrays) - set(model.layout.names))
    if unknown:
        raise StrategyError(
            f"flower: the model {model.name} has no parameter {unknown[0]!r}; start the strategy with "
            "odt_sim.flower.initial_arrays(model, strategy)"
        )
    layout = model.layout.select(lambda parameter: parameter.name in arrays)
    return Weights.from_tensors(layout, [arrays[name].numpy().astype(np.float32) for name in layout.names])


def content_of(body: Mapping[str, Any], tensors: Tensors | None = None) -> RecordDict:
    """Return the content of a message from a body, sent as JSON, and tensors."""
    tensors = tensors or {}
    layouts = {name: list(tensor.layout.names) for name, tensor in tensors.items() if isinstance(tensor, Weights)}
    text = json.dumps({**body, "layouts": layouts}, default=lambda number: number.item())  # of numpy
    arrays = {name: Array(np.ascontiguousarray(array_of(tensor))) for name, tensor in tensors.items()}
    return RecordDict({"tensors": ArrayRecord(arrays), "body": ConfigRecord({"json": text})})


def body_of(content: RecordDict) -> dict[str, Any]:
    """Return the body of a message."""
    return dict(json.loads(content["body"]["json"]))


def tensors_of(content: RecordDict, model: TrainableModel) -> dict[str, Any]:
    """Return the tensors of a message."""
    parameters = {parameter.name: parameter for parameter in model.parameters}
    layouts = {
        name: Layout(tuple(parameters[each] for each in names)) for name, names in body_of(content)["layouts"].items()
    }
    arrays = {name: array.numpy() for name, array in content["tensors"].items()}
    return {name: Weights(layouts[name], array) if name in layouts else array for name, array in arrays.items()}


def task_content(task: Task, device: int, broadcast: Tensors, kept: set[int]) -> RecordDict:
    """Return the content of a message that requests a device's part of a task from its node.

    Args:
        task: The task of the device's block.
        device: The device.
        broadcast: The server's broadcast; the device receives its part of it.
        kept: The rounds after which the node's states are still needed.
    """
    message = task.messages.get(device)
    body = {
        "kind": task.kind,
        "round": task.round,
        "device": device,
        "version": task.versions.get(device),
        "straggler": device in task.stragglers,
        "units": task.units.get(device),
        "factor": task.factors.get(device),
        "saves": task.saves,
        "utility": task.utility,
        "kept": sorted(kept),
        "shared": None if message is None else message.shared,
    }
    sent = set(broadcast)
    if message is not None:
        sent &= {
            *message.shared.values(),
            *({"weights"} if task.kind == "final" else ()),
        }  # the final evaluation also measures the global model
    tensors = {f"broadcast/{name}": broadcast[name] for name in sorted(sent)}
    return content_of(
        body, tensors | {f"own/{name}": value for name, value in (message.own if message else {}).items()}
    )


def task_of(content: RecordDict, model: TrainableModel) -> tuple[Task, Tensors]:
    """Return the task in a `task_content`, for one device, and its part of the broadcast."""
    body, tensors = body_of(content), tensors_of(content, model)
    device = body["device"]
    broadcast, own = (
        {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        for prefix in ("broadcast/", "own/")
    )

    def of_device(value: Any) -> dict[int, Any]:
        return {} if value is None else {device: value}

    task = Task(
        body["kind"],
        body["round"],
        (device,),
        of_device(body["version"] and Version(*body["version"])),
        frozenset({device} if body["straggler"] else ()),
        of_device(body["units"]),
        of_device(body["factor"]),
        body["saves"],
        body["utility"],
        of_device(None if body["shared"] is None else Message(body["shared"], own)),
    )
    return task, read_only(broadcast)


def trained_content(trained: Trained, device: int) -> RecordDict:
    """Return the content of a message from the outcome of one device."""
    single = trained.each.get(device)
    tensors: Tensors = {
        name: array if (layout := trained.layouts[name]) is None else Weights(layout, array)
        for name, array in trained.sums.items()
    }
    tensors = single.tensors if single else tensors
    body = {name: getattr(trained, name) for name in (*_NUMBERS, *_BY_DEVICE, "contributed")}
    body |= {"unweighted": sorted(trained.unweighted), "summed": list(trained.sums), "each": single is not None}
    content = content_of(body, tensors)
    content["losses"] = ArrayRecord({"losses": Array(single.losses)} if single else {})
    return content


def trained_of(content: RecordDict, model: TrainableModel) -> Trained:
    """Return the outcome of one device from a message's content."""
    body, tensors = body_of(content), tensors_of(content, model)
    [device] = body["contributed"] or [None]
    each = {}
    if body["each"]:
        each[device] = Update(tensors, body["weight"], content["losses"]["losses"].numpy())
    fields: dict[str, Any] = {name: body[name] for name in (*_NUMBERS, "contributed")}
    fields |= {name: {int(id): value for id, value in body[name].items()} for name in _BY_DEVICE}
    return Trained(
        sums={name: array_of(tensors[name]) for name in body["summed"]},
        layouts={name: tensor.layout if isinstance(tensor, Weights) else None for name, tensor in tensors.items()},
        each=each,
        unweighted=frozenset(body["unweighted"]),
        **fields,
    )
