"""The file that an engine runs: a model's own file, or one derived from it in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout


@dataclass(frozen=True)
class EngineFile:
    """A file, and the parameters and slots of a model that it contains.

    Attributes:
        content: Its bytes.
        layout: The parameters `a0..aN` of its signatures `parameters` and `restore`.
        slots: The numbers of the optimizer's slots of its signatures `optimizer_state` and `restore_optimizer_state`.
        offset: The parameters of its signature `set_gradient_offset`; empty if it has none.
        several: By training signature, the step counts, the largest first, for which the file also has a signature of
            several steps, see `odt_sim.model.repeated`. It has the inputs and outputs of a single step with the steps
            as a further first axis, except for the rows, of which each step gathers its own.
    """

    content: bytes
    layout: Layout
    slots: tuple[int, ...]
    offset: Layout
    several: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def own_file(model: TrainableModel) -> EngineFile:
    """Return a model's own file, which contains the whole model."""
    offset = model.trainable_layout if "set_gradient_offset" in model.signatures else Layout(())
    return EngineFile(model.content, model.layout, tuple(range(len(model.slots))), offset)
