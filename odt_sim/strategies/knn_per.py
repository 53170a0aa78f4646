"""kNN-Per: the global model's answers, mixed with those of a device's own examples near by.

Marfoq et al. 2022, Personalized Federated Learning through Local Memorization.
Rule: FedAvg on w. A device's user gets `share p + (1 - share) q`, where q is what the model answers and p the mean of the
targets of the `neighbours` training examples whose embeddings are nearest, each weighted by `exp(-distance)`, Euclidean. The
share, in 0, 0.1, ..., 1, is that of the smallest loss on the device's own validation examples, the smallest among equals. Of
a classifier probabilities are mixed; of a regression, which the paper does not have, values.
Travels: w, BatchNorm statistics included, as in FedAvg. Stays: the examples, whose embeddings the device computes under the
deployed model. The optimizer's slots start fresh every round, and Dropout draws as in FedAvg.
Unseen devices do as all do: nothing is trained for a single device.
Hyper-parameters: `neighbours`, 1..100, default 10; a device without validation examples keeps the global model's answers.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.device import Device
from odt_sim.errors import StrategyError
from odt_sim.hyperparameters import checked_count
from odt_sim.metrics.device import log_softmax
from odt_sim.model.manifest import REGRESSIONS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors

Array = NDArray[Any]
SHARES = tuple(i / 10 for i in range(11))
CLASSIFICATIONS = ("sparse_categorical_crossentropy", "categorical_crossentropy")


class KNNPer(Strategy):
    """FedAvg, whose users get answers that their own nearest examples have a share in."""

    needs = frozenset({"embed"})

    def __init__(self, neighbours: int = 10) -> None:
        """Sets how many examples have a say.

        Args:
            neighbours: How many, at most; a device may have fewer.
        """
        self.neighbours = checked_count("neighbours", neighbours, 1)

    def check(self, model: TrainableModel) -> None:
        """Checks also that the model gives an example one answer, whose mean with others is an answer."""
        super().check(model)
        if model.loss not in (*CLASSIFICATIONS, *REGRESSIONS) or len(model.output.shape) != 2:
            raise StrategyError(
                f"strategy {self.name}: mixes class probabilities or regressed values, one row an example; the model "
                f"{model.name} answers with {list(model.output.shape)} under {model.loss}; choose another strategy"
            )

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Returns the global weights, and has the device's answers mixed by the share that validates best."""
        weights = super().deploy(device, broadcast)
        chosen = 0.0
        if len(device.validation_examples):
            memory = _memory(device, self.neighbours)
            chosen = min(SHARES, key=lambda share: _validation_loss(device, memory, share))
            device.correction = replace(memory, share=chosen) if chosen else None
        device.records["neighbour_share"] = chosen
        return weights


@dataclass(frozen=True, eq=False)
class Memory:
    """A device's examples, and how they answer.

    Attributes:
        embeddings: `[examples, features]` float64.
        targets: `[examples, outputs]` float64: a probability for each class, or the values.
        neighbours: How many of the nearest have a say.
        share: Their share in the answer, 0..1.
        loss: The model's loss.
        from_logits: Whether outputs are logits.
    """

    embeddings: Array
    targets: Array
    neighbours: int
    share: float
    loss: str
    from_logits: bool

    def __call__(self, embeddings: Array, outputs: Array) -> Array:
        """Returns mixed outputs `[rows, outputs]`, logits where the model's are: the logarithms of probabilities."""
        logits = self.loss in CLASSIFICATIONS and self.from_logits
        answers = np.exp(log_softmax(outputs)) if logits else outputs.astype(np.float64)
        mixed = self.share * self.recalled(embeddings) + (1 - self.share) * answers
        return np.asarray(np.log(np.maximum(mixed, np.finfo(np.float64).tiny)) if logits else mixed)

    def recalled(self, embeddings: Array) -> Array:
        """Returns `[rows, outputs]`: the weighted mean of the targets of the nearest examples."""
        queries = _flat(embeddings)
        squares = (queries**2).sum(axis=1)[:, np.newaxis] + (self.embeddings**2).sum(axis=1)
        distances = np.sqrt(np.maximum(squares - 2 * queries @ self.embeddings.T, 0))
        nearest = np.argsort(distances, axis=1, kind="stable")[:, : self.neighbours]
        near = np.take_along_axis(distances, nearest, axis=1)
        weights = np.exp(near[:, :1] - near)  # of the same ratios as exp(-distance), and never all 0
        shares = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("rk,rko->ro", shares, self.targets[nearest]))


def _memory(device: Device, neighbours: int) -> Memory:
    model = device.model
    x, y = device.embedded("train").take()
    outputs = model.output.shape[-1]
    hot = model.loss == "sparse_categorical_crossentropy"
    targets = np.eye(outputs)[y.reshape(-1).astype(np.int64)] if hot else y.reshape(len(y), outputs).astype(np.float64)
    return Memory(_flat(x), targets, neighbours, 0.0, str(model.loss), model.from_logits)


def _validation_loss(device: Device, memory: Memory, share: float) -> float:
    device.correction = replace(memory, share=share) if share else None
    return device.loss("validation")


def _flat(embeddings: Array) -> Array:
    return embeddings.reshape(len(embeddings), -1).astype(np.float64)
