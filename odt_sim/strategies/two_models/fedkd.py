"""FedKD: a local mentor and a shared mentee teach each other, and updates travel as low-rank factors.

Paper: Wu et al. 2022, Communication-efficient federated learning via knowledge distillation.
Rule: in each batch, both models train by the cross-entropy L and `KL(p_other || p) / (L_mentor + L_mentee)`, with the
predictions and losses of both before the step. The mentee's change travels; the server averages the changes, weighted
by examples, and sends the mean. Each matrix of a change travels as the largest singular values that make up the share T
of its energy (the sum of squared singular values), with their vectors. T rises from `energy_start` to `energy_end` over
the first `rounds` rounds. A device's user gets the mentor.
Travels: the mentee's change, BatchNorm statistics included, as factors both ways; a device that did not take part in
the previous round receives the whole mentee.
Stays: the mentor with its statistics and optimizer slots, and the mentee as received. The mentee's optimizer slots start
fresh every round, and Dropout draws as in FedAvg, with the same masks for both.
Deviations: both models have the file's architecture, each with its own weights; the paper's mentor is larger. Both
start from the exported weights. The loss on the distance between hidden states is omitted, since it needs an extra
layer between models of different sizes. Predictions are made without Dropout. A kernel of more than two axes is
reshaped to a matrix whose columns are the last axis. A matrix travels whole if its factors are larger.
`L_mentor + L_mentee` counts as at least 0.001. The clock of `fleet.profiles` runs before training, and assumes that
devices send whole matrices. A learning-rate schedule counts each batch as two steps of its round.
Unseen devices train a mentor with the mentee for `unseen_epochs` before deployment.
Hyper-parameters: `energy_start`, above 0 to 1, default 0.95; `energy_end`, above 0 to 1, default 0.98; `rounds`, at least 1,
default 40, as `run.rounds`; `unseen_epochs`, 0..50, default 10.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odt_sim.device.batches import Batch
from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.hyperparameters import count, number
from odt_sim.model.tensors import array_of
from odt_sim.model.weights import Layout, Weights
from odt_sim.strategies.base import ServerState, Strategy, Tensors, Update, Updates, weights_of
from odt_sim.strategies.classes import labels_in, logarithms
from odt_sim.strategies.state import keep_optimizer, recall, recall_optimizer, scaled
from odt_sim.strategies.two_models.personal import keep_whole

MENTEE = "mentee"
SMALLEST_LOSS = 1e-3
"""Lower bound of the sum of both losses by which the distillation is divided."""


VALUES, RANKS = "values", "ranks"
"""Names of the parameters or factors, `[numbers]` float32, and the ranks, `[parameters]` int32; 0 is uncompressed."""


class FedKD(Strategy):
    """Personal models that learn together with a shared model, whose changes travel compressed.

    Attributes:
        energy_start: Share of a matrix's energy that travels at first, above 0 to 1; with 1 in both all of it does.
        energy_end: Share that travels after `rounds` rounds, above 0 to 1.
        rounds: Rounds over which the share changes evenly.
        unseen_epochs: Epochs for which a device that never trained, unseen or seen, trains a mentor before deployment.
    """

    needs = frozenset({"distillation"})
    keeps_updates = True
    not_averaged = frozenset({VALUES, RANKS})
    asynchronous = False
    reads_examples = True
    energy_start: float = number(0.95, 0, 1, above=True, search="interval(0.5,0.98)")
    energy_end: float = number(0.98, 0, 1, above=True)
    rounds: int = count(40, 1)
    unseen_epochs: int = count(10)

    def _energy(self, round: int) -> float:
        return self.energy_start + (self.energy_end - self.energy_start) * min(round / self.rounds, 1)

    def message(self, state: ServerState, device: int) -> Tensors:
        """Return the last change if the device has the mentee before that change, else the whole mentee."""
        if "holders" in state.private and device in array_of(state.private["holders"]):
            return {name: state.broadcast[name] for name in (VALUES, RANKS)}
        return {MENTEE: state.broadcast["weights"]}

    def local(self, device: Device, broadcast: Tensors) -> Update:
        """Train both models, and send the mentee's change."""
        received = _received(device, broadcast)
        device.state[MENTEE] = received
        mentor, mentee, losses = _train(device, received, device.plan)
        mentor.put(device)
        keep_whole(device, device.weights)
        keep_optimizer(device)
        change = mentee.weights.select(received.layout) - received
        return Update(compressed(change, self._energy(device.round)), len(device.train_examples), losses)

    def aggregate(self, state: ServerState, updates: Updates) -> ServerState:
        """Add the compressed mean of the changes to the mentee."""
        round = int(array_of(state.private.get("rounds", np.zeros(1)))[0]) + 1
        total = np.zeros(state.weights.layout.size)
        for id in sorted(updates.each):
            total += updates.each[id].weight * restored(updates.each[id].tensors, state.weights.layout).vector
        mean = Weights(state.weights.layout, (total / updates.weight).astype(np.float32))
        sent = compressed(scaled(mean, self.server_learning_rate), self._energy(round))
        mentee = state.weights + restored(sent, state.weights.layout)
        private = {"rounds": np.array([round]), "holders": np.array(sorted(updates.each))}
        return ServerState({"weights": mentee, **sent}, private)

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Return the device's mentor, trained first if the device has none."""
        recall(device)
        if "own" in device.state:
            return device.weights
        mentor, _, _ = _train(device, _received(device, broadcast), TrainingPlan(self.unseen_epochs))
        return mentor.weights


@dataclass(frozen=True, eq=False)
class _Model:
    """One of a device's two models.

    Attributes:
        weights: All its weights.
        slots: The slots of its optimizer.
    """

    weights: Weights
    slots: list[NDArray[Any]]

    @classmethod
    def of(cls, device: Device) -> "_Model":
        """Return the device's current model."""
        return cls(device.weights, device.optimizer_state())

    def put(self, device: Device) -> None:
        """Load the model onto a device."""
        device.restore(self.weights)
        device.restore_optimizer_state(self.slots)


def _received(device: Device, broadcast: Tensors) -> Weights:
    """Return the received mentee, or the stored mentee plus the received change."""
    if MENTEE in broadcast:
        return weights_of(broadcast, MENTEE)
    exported = device.initial.select(device.model.moving)  # the clock measures a device's work without its state
    kept = weights_of({MENTEE: exported, **device.state}, MENTEE)
    return kept + restored(broadcast, kept.layout)


def _train(device: Device, received: Weights, plan: TrainingPlan) -> tuple[_Model, _Model, NDArray[np.float32]]:
    """Return the mentor and the mentee after the steps of a plan, and the mentee's losses."""
    device.restore(received)
    mentee = _Model.of(device)
    device.restore(device.initial)
    recall(device)
    recall_optimizer(device)
    mentor = _Model.of(device)
    losses = []
    for batch in device.batches(plan):
        (mentor, mentee), loss = _step(device, batch, mentor, mentee)
        losses.append(loss)
    return _finished(device, mentor), _finished(device, mentee), np.array(losses, np.float32)


def _step(device: Device, batch: Batch, mentor: _Model, mentee: _Model) -> tuple[list[_Model], float]:
    """Return both models after a step on a batch, and the mentee's loss."""
    each, answers, losses = np.arange(batch.examples), [], []
    for model in (mentee, mentor):  # the device has the mentee loaded from the last step, and trains the mentor next
        model.put(device)
        answers.append(logarithms(device, device.infer_batch(batch)))
        losses.append(-answers[-1][each, labels_in(batch.y)[each]].mean())
    factor = np.asarray(1 / max(sum(losses), SMALLEST_LOSS), np.float32)
    after, loss = [], 0.0
    for model, teacher in zip((mentor, mentee), answers, strict=True):
        model.put(device)
        inputs = {**batch.inputs, "distillation": factor, "teacher_logits": teacher.astype(np.float32)}
        loss = device.train_step(batch._replace(inputs=inputs))
        after.append(_Model.of(device))
    return after, loss


def _finished(device: Device, model: _Model) -> _Model:
    model.put(device)
    device.finish()
    return _Model.of(device)


def compressed(weights: Weights, energy: float) -> Tensors:
    """Compress weights to the fewest singular values that keep a share of each matrix's energy.

    A parameter of two or more axes is reshaped to a matrix whose columns are the last axis. If its factors U, s and V
    have fewer numbers than the matrix, they travel instead.

    Args:
        weights: The weights; matrices with non-finite numbers or only zeros stay uncompressed.
        energy: Minimum share of the sum of squared singular values to keep, above 0 to 1.
    """
    values: list[NDArray[Any]] = [np.zeros(0)]
    ranks = []
    for tensor in weights.tensors():
        factors = _factors(tensor, energy)
        ranks.append(len(factors[1]) if factors else 0)
        values += [factor.ravel() for factor in factors] or [tensor.ravel()]
    return {VALUES: np.concatenate(values).astype(np.float32), RANKS: np.array(ranks, np.int32)}


def _factors(tensor: NDArray[np.float32], energy: float) -> tuple[NDArray[np.float64], ...]:
    """Return U `[rows, k]`, s `[k]` and V `[k, columns]`; an empty tuple if the matrix itself is smaller."""
    if tensor.ndim < 2 or not np.isfinite(tensor).all() or not tensor.any():
        return ()
    matrix = tensor.reshape(-1, tensor.shape[-1]).astype(np.float64)
    if wide := matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    # An eigendecomposition of the smaller product takes a third of the time of `svd`. Squaring loses half of the
    # digits of small singular values, but `matrix @ v`, which equals `u * s`, keeps full precision in the product of
    # the factors.
    squares, v = np.linalg.eigh(matrix.T @ matrix)
    squares, v = np.maximum(squares[::-1], 0), v[:, ::-1]
    kept = np.cumsum(squares)
    rank = int(np.searchsorted(kept, energy * kept[-1])) + 1
    if rank * (sum(matrix.shape) + 1) >= tensor.size:
        return ()
    v = v[:, :rank]
    scaled = matrix @ v
    s = np.sqrt((scaled**2).sum(axis=0))
    u = scaled / np.where(s > 0, s, 1)
    return (v, s, u.T) if wide else (u, s, v.T)


def restored(tensors: Tensors, layout: Layout) -> Weights:
    """Return the weights that `compressed` approximated.

    Args:
        tensors: The result of `compressed`.
        layout: The parameters of the weights.
    """
    values, ranks = array_of(tensors[VALUES]), array_of(tensors[RANKS])
    whole, start = [], 0
    for parameter, rank in zip(layout.parameters, ranks.tolist(), strict=True):
        columns = parameter.shape[-1] if parameter.shape else 1
        rows = prod(parameter.shape) // max(columns, 1)
        sizes = (rows * rank, rank, rank * columns) if rank else (rows * columns,)
        ends = start + np.cumsum(sizes)
        factors = np.split(values[start : ends[-1]], ends[:-1] - start)
        start = int(ends[-1])
        if rank:
            u, s, v = factors
            factors = [(u.reshape(rows, rank) * s) @ v.reshape(rank, columns)]
        whole.append(factors[0].reshape(parameter.shape))
    return Weights.from_tensors(layout, whole)
