"""Federated averaging, then fine-tuning on each device.

Yu et al. 2020, Salvaging Federated Learning by Local Adaptation; Wang et al. 2019, Federated Evaluation of On-device
Personalization.
Rule: from the global weights, train `e` epochs locally, `e` in 0..max_epochs with the smallest loss on the device's own
validation examples (the fewest epochs among equals).
Travels: all weights, as in FedAvg. Stays: nothing.
Hyper-parameters: `max_epochs`, 0..50, default 5; a device without validation examples keeps the global weights.
"""

import math

from odt_sim.device.device import Device
from odt_sim.errors import ConfigurationError
from odt_sim.model.weights import Weights
from odt_sim.strategies.base import Strategy, Tensors


class FedAvgFineTune(Strategy):
    """FedAvg whose users get the global model fine-tuned on their device."""

    def __init__(self, max_epochs: int = 5) -> None:
        """Sets the longest fine-tuning.

        Args:
            max_epochs: The most epochs that a device may choose.
        """
        if max_epochs < 0:
            raise ConfigurationError(f"strategy.max_epochs: expected at least 0, found {max_epochs}")
        self.max_epochs = max_epochs

    def deploy(self, device: Device, broadcast: Tensors) -> Weights:
        """Fine-tunes, and returns the weights of the epoch that validates best."""
        best, chosen, smallest = super().deploy(device, broadcast), 0, math.inf
        if len(device.validation_examples):
            smallest = device.evaluate("validation")["loss"]
            for epoch in range(1, self.max_epochs + 1):
                device.train(epochs=1)
                loss = device.evaluate("validation")["loss"]
                if loss < smallest:
                    best, chosen, smallest = device.parameters(), epoch, loss
        device.records["fine_tune_epochs"] = chosen
        return best
