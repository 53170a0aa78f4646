"""The shipped strategies that a model's file allows."""

from collections import defaultdict
from importlib.resources import files
from typing import cast

from omegaconf import DictConfig, OmegaConf

from odt_sim.cli.build import build
from odt_sim.model.trainable import TrainableModel
from odt_sim.strategies.base import Strategy


def allowed_strategies(model: TrainableModel) -> list[str]:
    """Return a line of the strategies that a model's capabilities allow, then one for each lack of the others."""
    allowed: list[str] = []
    refused = defaultdict[str, list[str]](list)
    for name, strategy in _shipped().items():
        missing = ", ".join(sorted(strategy.needed(model) - model.capabilities))
        (refused[missing] if missing else allowed).append(name)
    others = [f"  {missing}: {', '.join(names)}" for missing, names in sorted(refused.items())]
    return [f"strategies: {', '.join(allowed) or 'none'}", *(["others, by what they need:"] if others else []), *others]


def _shipped() -> dict[str, Strategy]:
    """Return the strategies of `conf/strategy` by name."""
    folder = files("odt_sim.conf").joinpath("strategy")
    options = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {
        file.name.removesuffix(".yaml"): build(cast(DictConfig, OmegaConf.create(file.read_text())), "strategy")
        for file in options
    }
