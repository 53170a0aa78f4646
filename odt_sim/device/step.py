"""Which signature trains what."""

from functools import lru_cache
from typing import NamedTuple

from odt_sim.errors import ModelError
from odt_sim.model.manifest import GROUPS
from odt_sim.model.optional import parts_of
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout


class Step(NamedTuple):
    """A way to train a model.

    Attributes:
        signature: `train`, `train_<group>`, or `head_train`, which takes embeddings in place of `x`.
        trained: The trainable parameters that it changes.
        only_head: Whether it changes nothing outside the head.
    """

    signature: str
    trained: Layout
    only_head: bool

    @property
    def on_embeddings(self) -> bool:
        """Whether it trains on what `embed` says of the examples."""
        return self.signature == "head_train"


@lru_cache(32)  # every training asks for it
def step_of(model: TrainableModel, group: str | None = None) -> Step:
    """Returns the way to train all of a model or one group; where that is its head only, on embeddings if it can.

    Args:
        model: The model.
        group: `head`, `body`, `norm`, or several joined by `_`; None for all that is trainable.

    Raises:
        ModelError: The model cannot train this group alone.
    """
    parts = GROUPS if group is None else parts_of(group)
    if not parts:
        raise ModelError(
            f"{model.where}: no group {group!r} of parameters; expected {', '.join(GROUPS)}, or several joined by _"
        )
    trained = model.trainable_layout.select(lambda p: p.group in parts)
    only_head = group == "head" or model.all_moves_in(("head",))
    if only_head and model.embeds and "head" in parts:
        return Step("head_train", trained, only_head)
    own = f"train_{group}"
    if own in model.signatures:
        return Step(own, trained, only_head)
    if not model.all_moves_in(parts):
        known = [name.removeprefix("train_") for name in sorted(model.capabilities) if name.startswith("train_")]
        raise ModelError(
            f"{model.where}: cannot train group {group!r} alone (it can train {', '.join(known) or 'all at once'}); "
            f"export it with train_groups=[{group!r}]"
        )
    return Step("train", trained, only_head)
