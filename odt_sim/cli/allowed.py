"""The shipped strategies that a model file supports."""

from collections import defaultdict
from importlib.resources import files
from typing import cast

import yaml  # type: ignore[import-untyped]

from odt_sim._support.user_code import imported
from odt_sim.cli.libyaml import use_libyaml
from odt_sim.model.trainable import TrainableModel
from odt_sim.strategies.base import Strategy

use_libyaml()


def allowed_strategies(model: TrainableModel) -> list[str]:
    """Return a line with the strategies that a model allows, then lines with the others by their missing capabilities."""
    allowed: list[str] = []
    refused = defaultdict[str, list[str]](list)
    for name, strategy in _shipped().items():
        missing = ", ".join(sorted(strategy.needed(model) - model.capabilities))
        (refused[missing] if missing else allowed).append(name)
    others = [f"  {missing}: {', '.join(names)}" for missing, names in sorted(refused.items())]
    return [
        f"strategies: {', '.join(allowed) or 'none'}",
        *(["other strategies, by what they need:"] if others else []),
        *others,
    ]


def _shipped() -> dict[str, Strategy]:
    """Return the strategies of `conf/strategy` by name."""
    folder = files("odt_sim.conf").joinpath("strategy")
    options = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): _made(file.read_text()) for file in options}


def _made(option: str) -> Strategy:
    """Return the strategy of a shipped option without Hydra, whose import takes as long as everything else."""
    settings = yaml.safe_load(option)
    return cast(Strategy, imported(settings.pop("_target_"), "strategy")(**settings))
