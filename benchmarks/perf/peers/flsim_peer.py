"""FLSim: its asynchronous trainer with FedBuff on its virtual clock, as many clients in flight as there are."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import peers.repairs  # noqa: F401 (before FLSim)

# isort: split
from flsim.clients.base_client import ClientConfig
from flsim.data.data_provider import FLDataProviderFromList
from flsim.interfaces.model import IFLModel
from flsim.optimizers.async_aggregators import FedAvgWithLRFedBuffAggregatorConfig
from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig
from flsim.trainers.async_trainer import AsyncTrainer, AsyncTrainerConfig
from flsim.utils.async_trainer.training_event_generator import (
    AsyncTrainingEventGeneratorConfig,
    ConstantAsyncTrainingStartTimeDistrConfig,
)
from flsim.utils.simple_batch_metrics import FLBatchMetrics
from flsim.utils.timing.training_duration_distribution import PerUserGaussianDurationDistributionConfig
from omegaconf import OmegaConf
from peers.torch_work import STEP_SIZE, Logistic, client_samples
from peers.window import BATCH, Plan, Report, Window, run_program
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


class Model(IFLModel):
    """The model in FLSim's form."""

    def __init__(self) -> None:
        self.module = Logistic()

    def fl_forward(self, batch: Batch) -> FLBatchMetrics:
        """Scores and loss of a batch."""
        inputs, labels = batch
        scores = self.module(inputs)
        loss = nn.functional.cross_entropy(scores, labels)
        return FLBatchMetrics(
            loss=loss, num_examples=len(labels), predictions=scores, targets=labels, model_inputs=inputs
        )

    def fl_create_training_batch(self, **given: Any) -> Batch:
        """The batch as it was handed over."""
        batch: Batch = given["batch"]
        return batch

    def fl_get_module(self) -> nn.Module:
        """The torch module."""
        return self.module

    def fl_cuda(self) -> None:
        """There is no GPU."""

    def get_eval_metrics(self, batch: Batch) -> FLBatchMetrics:
        """As in training."""
        return self.fl_forward(batch)

    def get_num_examples(self, batch: Batch) -> int:
        """Length of a batch."""
        return len(batch[1])


class Over(Exception):
    """The window is over; FLSim's trainer cannot be asked to stop."""


class Trainer(AsyncTrainer):
    """FLSim's trainer, which counts the updates that it has aggregated."""

    window: Window
    updates = 0

    def train_and_update_global_model(self, client: Any) -> None:
        """Train a client, use its update."""
        super().train_and_update_global_model(client)
        self.updates += 1
        self.window.note(self.updates, Logistic.steps)
        if self.window.is_over:
            raise Over


def batches(plan: Plan, inputs: Tensor, labels: Tensor) -> list[Batch]:
    """The batches of an update: FLSim's clients go through all that they hold, so they hold no more."""
    whole = list(zip(inputs.split(BATCH), labels.split(BATCH), strict=True))
    return [whole[number % len(whole)] for number in range(plan.local_steps)]


def settings(plan: Plan) -> dict[str, Any]:
    """FLSim's configuration: n starts per second of virtual time, each of one second."""
    generator = AsyncTrainingEventGeneratorConfig(
        training_start_time_distribution=ConstantAsyncTrainingStartTimeDistrConfig(training_rate=plan.clients),
        duration_distribution_generator=PerUserGaussianDurationDistributionConfig(training_duration_mean=1.0),
    )
    config = AsyncTrainerConfig(
        epochs=1e9, do_eval=False, report_train_metrics=False, training_event_generator=generator,
        aggregator=FedAvgWithLRFedBuffAggregatorConfig(lr=1.0, buffer_size=plan.buffer),
        client=ClientConfig(epochs=1, optimizer=LocalOptimizerSGDConfig(lr=STEP_SIZE)),
    )  # fmt: skip
    return {key: value for key, value in OmegaConf.structured(config).items() if not key.startswith("_")}


def measure(plan: Plan) -> Report:
    """Train until the window is over."""
    logging.disable(logging.CRITICAL)
    model = Model()
    users = [batches(plan, *data.tensors) for data in client_samples(plan)]
    trainer = Trainer(model=model, **settings(plan))
    trainer.window = Window(plan, 2 * plan.buffer)
    with contextlib.suppress(Over):
        trainer.train(FLDataProviderFromList(users, [], [], model), None, plan.clients)
    return trainer.window.report()


if __name__ == "__main__":
    run_program(measure)
