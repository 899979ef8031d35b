"""The work of peers on torch: the clients' samples, the model, which counts the steps that it makes, and a plain loop.

python -m peers.torch_work plan.json     measures the plain loop: what torch takes without a framework
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from peers.window import BATCH, CLASSES, FEATURES, Plan, Report, Window, run_program
from torch import Tensor, nn
from torch.utils.data import TensorDataset

STEP_SIZE = 0.01

torch.set_num_threads(1)


class Logistic(nn.Module):
    """Multinomial logistic regression without bias; `steps` counts the passes of all copies in this process."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores of a batch."""
        if inputs.shape != (BATCH, FEATURES):
            raise RuntimeError(f"a batch has the shape {tuple(inputs.shape)}, expected {(BATCH, FEATURES)}")
        Logistic.steps += 1
        return self.linear(inputs)


def samples(plan: Plan) -> tuple[Tensor, Tensor]:
    """The samples that the clients hold, one client after the other; pixels between 0 and 1."""
    rows = slice(plan.clients * plan.share)
    images = np.load(Path(plan.data) / "images.npy", mmap_mode="r")[rows]
    labels = np.load(Path(plan.data) / "labels.npy")[rows]
    return torch.from_numpy(images.astype(np.float32) / np.float32(255)), torch.from_numpy(labels)


@cache
def client_samples(plan: Plan) -> list[TensorDataset]:
    """The samples of each client, read once in each process."""
    inputs, labels = (tensor.split(plan.share) for tensor in samples(plan))
    return [TensorDataset(*parts) for parts in zip(inputs, labels, strict=True)]


def train(model: nn.Module, data: TensorDataset, steps: int) -> None:
    """Local steps with batches drawn with replacement."""
    inputs, labels = data.tensors
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)
    for _ in range(steps):
        rows = torch.randint(len(labels), (BATCH,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
        optimiser.step()


def measure(plan: Plan) -> Report:
    """One client after the other makes its local steps; nothing is sent or averaged."""
    clients = client_samples(plan)
    model = Logistic()
    updates = 0
    window = Window(plan, plan.clients)
    while not window.is_over:
        train(model, clients[updates % plan.clients], plan.local_steps)
        updates += 1
        window.note(updates, Logistic.steps)
    return window.report()


if __name__ == "__main__":
    run_program(measure)
