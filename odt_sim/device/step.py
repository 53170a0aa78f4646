"""Which signature trains what."""

from typing import NamedTuple

from odt_sim.errors import ModelError
from odt_sim.model.optional import ON_EMBEDDINGS, parts_of
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


def step_of(model: TrainableModel, group: str | None = None) -> Step:
    """Returns the way to train all of a model or one group; where that is its head only, on embeddings if it can.

    Args:
        model: The model.
        group: `head`, `body`, `norm`, or several joined by `_`; None for all that is trainable.

    Raises:
        ModelError: The model cannot train this group alone.
    """
    parts = parts_of(group) if group is not None else ()
    trained = model.trainable_layout.select(lambda p: group is None or p.group in parts)
    only_head = group == "head" or (group is None and frozen_body(model))
    if only_head and embeds(model):
        return Step("head_train", trained, only_head)
    signature = "train" if group is None else f"train_{group}"
    if signature not in model.signatures or (group is not None and not parts):
        others = [name.removeprefix("train_") for name in model.signatures if name.startswith("train_")]
        raise ModelError(
            f"{model.where}: cannot train group {group!r} alone (it can train {', '.join(others) or 'all at once'}); "
            f"export it with train_groups=[{group!r}]"
        )
    return Step(signature, trained, only_head)


def embeds(model: TrainableModel) -> bool:
    """Whether the model can embed examples, and train its head and answer from embeddings."""
    return model.signatures.keys() >= set(ON_EMBEDDINGS)


def frozen_body(model: TrainableModel) -> bool:
    """Whether no step changes anything outside the head."""
    return all(p.group == "head" or not p.moves for p in model.parameters)
