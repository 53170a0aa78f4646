"""The workloads on pfl-research with PyTorch, in one process, or in several under `torchrun`.

THREADS is the number of PyTorch's threads. FEATURES=1 computes a frozen body's features only once per device. COMPILE=1
sets pfl-research's option `use_torch_compile`.
"""

import os
import time
from functools import cache
from itertools import chain

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from peers.torch_models import in_keras_layout, network, tensors, trained
from peers.workloads import COHORT, Problem

FEATURES = os.environ.get("FEATURES") == "1"
STEPS = [0]


class CountedSGD(torch.optim.SGD):
    """SGD that counts its steps."""

    def step(self, closure: None = None) -> None:
        STEPS[0] += 1
        super().step(closure)


class Model(nn.Module):
    """A model with the loss and metrics methods that pfl-research requires."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        return cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor, eval: bool = False) -> dict[str, float]:
        return {}


class Marks(TrainingProcessCallback):
    """A callback that records the ends of rounds."""

    def __init__(self) -> None:
        self.times = list[float]()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.times.append(time.time())
        return False, Metrics()


def main() -> None:
    torch.set_num_threads(int(os.environ.get("THREADS", "1")))
    np.random.seed(0)  # noqa: NPY002 (processes must share the seed)
    problem, marks = Problem.chosen(), Marks()
    workload, model = problem.workload, Model(network(problem, FEATURES))

    @cache
    def dataset(device: int) -> Dataset:
        x, y = tensors(problem, device, FEATURES)
        order = torch.randperm(len(x))  # pfl-research uses the same order in all epochs
        return Dataset(raw_data=[x[order], y[order]], user_id=str(device))

    cohorts = problem.cohorts.tolist()
    sizes = {device: problem.size(device) for device in range(problem.devices)}
    data = FederatedDataset(dataset, chain.from_iterable(cohorts * 2000).__next__, sizes)
    pfl_model = PyTorchModel(
        model,
        local_optimizer_create=CountedSGD,
        central_optimizer=torch.optim.SGD(trained(model), 1.0),
        use_torch_compile=os.environ.get("COMPILE") == "1",
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=problem.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=None, postprocessors=[WeightByDatapoints()]),
        model=pfl_model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=workload.learning_rate,
            local_num_epochs=workload.epochs,
            local_batch_size=workload.batch,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[marks],
    )
    problem.report(marks.times, STEPS[0], in_keras_layout(problem, trained(model)))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
