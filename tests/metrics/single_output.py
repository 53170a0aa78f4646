"""The metrics of a model with one output, by its loss."""

from typing import Any

from odt_sim.metrics.device import output_figures
from odt_sim.model.contract.manifest import Output, task_of


def figures(outputs: Any, y: Any, loss: str | None, from_logits: bool) -> dict[str, float]:
    return output_figures(Output("", loss, from_logits, task=task_of(loss)), outputs, y)
