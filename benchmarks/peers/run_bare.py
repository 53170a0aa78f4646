"""The workloads in a plain PyTorch loop without a framework, in one process.

THREADS is the number of PyTorch's threads. FEATURES=1 computes a frozen body's features only once per device.
"""

import os
import time
from functools import cache

import torch
from torch.nn.functional import cross_entropy

from peers.torch_models import in_keras_layout, network, tensors, trained
from peers.workloads import Problem

FEATURES = os.environ.get("FEATURES") == "1"


def main() -> None:
    torch.set_num_threads(int(os.environ.get("THREADS", "1")))
    problem, marks, steps = Problem.chosen(), list[float](), 0
    workload, model = problem.workload, network(problem, FEATURES)
    parameters, examples = trained(model), cache(lambda device: tensors(problem, device, FEATURES))
    optimizer = torch.optim.SGD(parameters, lr=workload.learning_rate)
    current = [parameter.detach().clone() for parameter in parameters]
    for cohort in problem.cohorts[: problem.rounds].tolist():
        total = sum(problem.size(device) for device in cohort)
        following = [torch.zeros_like(value) for value in current]
        for device in cohort:
            with torch.no_grad():
                torch._foreach_copy_(parameters, current)
            x, y = examples(device)
            for _ in range(workload.epochs):
                order = torch.randperm(len(x))
                for rows in order.split(workload.batch):
                    optimizer.zero_grad()
                    cross_entropy(model(x[rows]), y[rows]).backward()
                    optimizer.step()
                    steps += 1
            torch._foreach_add_(following, [p.detach() for p in parameters], alpha=len(x) / total)
        current = following
        marks.append(time.time())
    problem.report(marks, steps, in_keras_layout(problem, current))


if __name__ == "__main__":
    main()
