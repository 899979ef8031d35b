"""APPFL's virtual clock: AsyncSimDriver with its FedBuff and its own trainer, all clients in flight."""

from __future__ import annotations

import logging
from typing import Any

import peers.repairs  # noqa: F401 (before APPFL)

# isort: split
from appfl.agent import SimClientAgent, SimServerAgent
from appfl.vsim import AsyncSimDriver, ClientProfile
from omegaconf import OmegaConf
from peers.torch_work import STEP_SIZE, Logistic, client_samples
from peers.window import BATCH, Plan, Report, Window, run_program


def no_metric(_labels: Any, _scores: Any) -> float:
    """The trainer wants a metric of its training batches: this one computes nothing."""
    return 0.0


def settings(plan: Plan) -> dict[str, Any]:
    """APPFL's configuration; `optimize_memory` collects garbage several times per update and is switched off."""
    lean = {"optimize_memory": False}
    training = {
        "trainer": "VanillaTrainer", "mode": "step", "num_local_steps": plan.local_steps, "optim": "SGD",
        "optim_args": {"lr": STEP_SIZE}, "loss_fn": "CrossEntropyLoss", "metric_path": __file__,
        "metric_name": "no_metric", "train_batch_size": BATCH, "do_validation": False,
        "logging_output_dirname": plan.folder, "logging_output_filename": "", **lean,
    }  # fmt: skip
    serving = {
        "num_clients": plan.clients, "num_global_epochs": 10**9, "scheduler": "AsyncScheduler",
        "scheduler_kwargs": lean, "aggregator": "FedBuffAggregator",
        "aggregator_kwargs": {"K": plan.buffer, "client_weights_mode": "equal", **lean},
        "logging_output_dirname": plan.folder, "logging_output_filename": "server", **lean,
    }  # fmt: skip
    model = {"model_path": __file__, "model_name": Logistic.__name__}
    return {"client_configs": {"train_configs": training, "model_configs": model}, "server_configs": serving}


class Driver(AsyncSimDriver):
    """APPFL's loop, ended with the window."""

    window: Window

    def _handle_train_complete(self, cid: str, completion_time: float) -> None:
        super()._handle_train_complete(cid, completion_time)
        self.window.note(len(self.history), Logistic.steps)

    def _training_finished(self) -> bool:
        return self.window.is_over


def measure(plan: Plan) -> Report:
    """Virtual durations are the measured times of the local steps, which is APPFL's default."""
    logging.disable(logging.CRITICAL)
    config = settings(plan)
    server = SimServerAgent(OmegaConf.create(config))
    own = OmegaConf.create({**config["client_configs"], "optimize_memory": False})
    clients = [SimClientAgent(own.copy(), str(number), data) for number, data in enumerate(client_samples(plan))]
    profiles = {client.get_id(): ClientProfile() for client in clients}
    driver = Driver(server, clients, profiles, plan.clients, logging.getLogger("peer"))
    driver.window = Window(plan, 2 * plan.buffer)
    driver.run()
    return driver.window.report()


if __name__ == "__main__":
    run_program(measure)
