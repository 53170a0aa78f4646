"""kNN-Per: the global model's outputs, mixed with the targets of the device's nearest examples.

Paper: Marfoq et al. 2022, Personalized Federated Learning through Local Memorization.
Rule: FedAvg on w. A device's user gets `share p + (1 - share) q`: q is the model's output, p the mean of the targets of
the `neighbours` training examples with the nearest embeddings, weighted by `exp(-distance)` (Euclidean). The share in 0,
0.1, ..., 1 minimizes the loss on the device's validation examples (ties: the smallest share). Classifiers mix
probabilities.
Travels: w, BatchNorm statistics included, as in FedAvg.
Stays: the examples; the device computes their embeddings with the deployed model. Optimizer slots start fresh every
round, and Dropout draws as in FedAvg.
Deviations: regressions, which the paper does not treat, mix values.
Unseen devices do the same as all others, since nothing is trained for a single device.
Hyper-parameters: `neighbours`, 1..100, default 10. A device without validation examples keeps the global outputs.
"""

from dataclasses import dataclass, replace

import numpy as np

from odt_sim.data.store.columns import Array, only
from odt_sim.device.device import Device
from odt_sim.errors import StrategyError
from odt_sim.hyperparameters import count
from odt_sim.metrics.losses import log_softmax
from odt_sim.model.contract.manifest import REGRESSIONS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors
from odt_sim.strategies.state import receive

SHARES = tuple(i / 10 for i in range(11))
CLASSIFICATIONS = ("sparse_categorical_crossentropy", "categorical_crossentropy")


class KNNPer(Strategy):
    """FedAvg that mixes outputs with the targets of the device's nearest examples.

    Attributes:
        neighbours: Maximum number of neighbours, at least 1.
    """

    needs = frozenset({"embed"})
    reads_examples = True
    without_validation = "users get the global model"
    neighbours: int = count(10, 1, search="int(interval(3,30))")

    def check(self, model: TrainableModel) -> None:
        """Check in addition that an example has one output vector that can be averaged."""
        super().check(model)
        shapes = [list(output.shape) for output in model.answers.values()]
        if model.loss not in (*CLASSIFICATIONS, *REGRESSIONS) or [len(shape) for shape in shapes] != [2]:
            raise StrategyError(
                f"strategy {self.name}: mixes class probabilities or regressed values, one row per example; the "
                f"model {model.name} returns {' and '.join(map(str, shapes))} with loss {model.loss}; choose another strategy"
            )

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the global weights; mix the device's outputs with the share that has the smallest validation loss."""
        weights = receive(device, broadcast)
        chosen = 0.0
        if len(device.validation_examples):
            memory = _memory(device, self.neighbours)
            trial = replace(memory, known={})
            chosen = min(SHARES, key=lambda share: _validation_loss(device, trial, share))
            device.correction = replace(memory, share=chosen) if chosen else None
        device.records["neighbour_share"] = chosen
        return weights


@dataclass(frozen=True, eq=False)
class Memory:
    """A device's examples as a nearest-neighbour predictor.

    Attributes:
        embeddings: `[examples, features]` float64.
        targets: `[examples, outputs]` float64: class probabilities or regressed values.
        neighbours: Number of nearest examples to average.
        share: Weight of the neighbours in the output, 0..1.
        loss: The model's loss.
        from_logits: Whether outputs are logits.
        known: The results of `recalled` by the bytes of their embeddings, to try several shares on the same batches; None
            to keep none.
    """

    embeddings: Array
    targets: Array
    neighbours: int
    share: float
    loss: str
    from_logits: bool
    known: dict[bytes, Array] | None = None

    def __call__(self, embeddings: Array, outputs: Array) -> Array:
        """Return mixed outputs `[rows, outputs]`, as logits if the model outputs logits."""
        logits = self.loss in CLASSIFICATIONS and self.from_logits
        answers = np.exp(log_softmax(outputs)) if logits else outputs.astype(np.float64)
        mixed = self.share * self._recalled_once(embeddings) + (1 - self.share) * answers
        return np.asarray(np.log(np.maximum(mixed, np.finfo(np.float64).tiny)) if logits else mixed)

    def _recalled_once(self, embeddings: Array) -> Array:
        if self.known is None:
            return self.recalled(embeddings)
        key = embeddings.tobytes()
        if key not in self.known:
            self.known[key] = self.recalled(embeddings)
        return self.known[key]

    def recalled(self, embeddings: Array) -> Array:
        """Return the weighted mean of the nearest examples' targets, `[rows, outputs]`."""
        queries = _flat(embeddings)
        squares = (queries**2).sum(axis=1)[:, np.newaxis] + (self.embeddings**2).sum(axis=1)
        distances = np.sqrt(np.maximum(squares - 2 * queries @ self.embeddings.T, 0))
        nearest = _nearest(distances, self.neighbours)
        near = np.take_along_axis(distances, nearest, axis=1)
        weights = np.exp(near[:, :1] - near)  # same ratios as exp(-distance), but never all 0
        shares = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("rk,rko->ro", shares, self.targets[nearest]))


def _nearest(distances: Array, count: int) -> Array:
    """Return the columns of the `count` smallest distances of each row, ascending; the first of equal ones comes first.

    This is a stable sort of whole rows, which would take most of the time of devices with thousands of examples.
    """
    if count >= distances.shape[1]:
        return np.argsort(distances, axis=1, kind="stable")
    columns = np.sort(np.argpartition(distances, count - 1, axis=1)[:, :count], axis=1)
    near = np.take_along_axis(distances, columns, axis=1)
    nearest = np.take_along_axis(columns, np.argsort(near, axis=1, kind="stable"), axis=1)
    tied = (distances <= near.max(axis=1, keepdims=True)).sum(axis=1) > count  # any of the last could be taken
    nearest[tied] = np.argsort(distances[tied], axis=1, kind="stable")[:, :count]
    return nearest


def _memory(device: Device, neighbours: int) -> Memory:
    model = device.model
    x, y = (only(rows, device.model.name, "choose another strategy") for rows in device.embedded("train").take())
    outputs = model.output.shape[-1]
    labels = model.loss == "sparse_categorical_crossentropy" or (y.ndim == 1 and outputs > 1)
    targets = (
        np.eye(outputs)[y.reshape(-1).astype(np.int64)] if labels else y.reshape(len(y), outputs).astype(np.float64)
    )
    return Memory(_flat(x), targets, neighbours, 0.0, str(model.loss), model.from_logits)


def _validation_loss(device: Device, memory: Memory, share: float) -> float:
    device.correction = replace(memory, share=share) if share else None
    return device.loss("validation")


def _flat(embeddings: Array) -> Array:
    return embeddings.reshape(len(embeddings), -1).astype(np.float64)
