"""Changes to the object form of a `.tflite` file, for the fixture `edited`."""

from collections.abc import Callable
from typing import Any

Change = Callable[[Any], None]


def signature(model: Any, key: str) -> Any:
    return next(s for s in model.signatureDefs if s.signatureKey == key.encode())


def entry(model: Any, key: str, side: str, name: str) -> Any:
    return next(e for e in getattr(signature(model, key), side) if e.name == name.encode())


def tensor(model: Any, key: str, side: str, name: str) -> Any:
    subgraph = model.subgraphs[signature(model, key).subgraphIndex]
    return subgraph.tensors[entry(model, key, side, name).tensorIndex]


def drop(*keys: str) -> Change:
    def change(model: Any) -> None:
        for key in keys:
            model.signatureDefs.remove(signature(model, key))

    return change


def drop_input(key: str, name: str) -> Change:
    def change(model: Any) -> None:
        signature(model, key).inputs.remove(entry(model, key, "inputs", name))

    return change


def rename(key: str, side: str, name: str, new: str) -> Change:
    def change(model: Any) -> None:
        entry(model, key, side, name).name = new

    return change


def retype(key: str, side: str, name: str, kind: int) -> Change:
    def change(model: Any) -> None:
        tensor(model, key, side, name).type = kind

    return change


def reshape(key: str, side: str, name: str, shape: list[int]) -> Change:
    def change(model: Any) -> None:
        tensor(model, key, side, name).shape = shape

    return change
