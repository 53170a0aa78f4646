"""Deployed models that are more than one set of weights: mixtures and ensembles."""

from collections.abc import Sequence

import numpy as np

from odt_sim.data.store.columns import Array, Rows, only
from odt_sim.device.device import Device
from odt_sim.device.scoring import Predictor
from odt_sim.metrics.losses import log_softmax
from odt_sim.metrics.tasks import model_task
from odt_sim.model.weights import Weights

__all__ = ["Ensemble", "Predictor"]


class Ensemble(Predictor):
    """The mean output of several sets of weights; classifiers average probabilities, other models values.

    Attributes:
        device: Runs the model.
        models: All weights of each model.
        shares: `[models]`, the weight of each model; the sum is 1.
    """

    def __init__(self, device: Device, models: Sequence[Weights], shares: Sequence[float] | Array) -> None:
        """Store the models; run nothing."""
        self.device, self.models, self.shares = device, list(models), np.asarray(shares, np.float64)

    def predict(self, x: Rows) -> Rows:
        """Return the mean outputs, as logits if the model's are."""
        answers = 0.0
        for model, share in zip(self.models, self.shares, strict=True):
            self.device.restore(model)
            answers = answers + share * self._answer(only(self.device.infer(x), "infer", "choose another strategy"))
        if not self._of_logits:
            return np.asarray(answers)
        logarithms = np.log(np.maximum(answers, np.finfo(np.float64).tiny))
        return np.asarray(logarithms[..., 1] - logarithms[..., 0] if self._of_pairs else logarithms)

    def _answer(self, outputs: Array) -> Array:
        if not self._of_logits:
            return outputs.astype(np.float64)
        return np.exp(log_softmax(np.stack([np.zeros_like(outputs), outputs], axis=-1) if self._of_pairs else outputs))

    @property
    def _of_logits(self) -> bool:
        return self.device.model.from_logits and model_task(self.device.model) not in ("regression", "other")

    @property
    def _of_pairs(self) -> bool:
        """Whether each output is the logit of the second of two classes."""
        model = self.device.model
        return model_task(model) in ("multi_label", "ranking") or model.output.shape[-1] == 1

    @property
    def nbytes(self) -> int:
        """The bytes of all models."""
        return sum(model.vector.nbytes for model in self.models) + self.shares.nbytes
