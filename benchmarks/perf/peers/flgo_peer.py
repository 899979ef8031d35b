"""FLGo: its FedBuff on its virtual clock without latencies; as many clients at a time as the buffer holds."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import flgo
import flgo.algorithm.fedbuff as fedbuff
from flgo.benchmark.partition import IIDPartitioner
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from peers.torch_work import STEP_SIZE, Logistic
from peers.window import BATCH, Plan, Report, Window, run_program

# FLGo takes data and model from a file of this form.
CONFIG = """\
from torch.utils.data import TensorDataset
from peers.torch_work import Logistic as get_model, samples
from peers.window import read_plan

train_data = TensorDataset(*samples(read_plan()))
test_data = None
"""


def options(plan: Plan) -> dict[str, Any]:
    """FLGo's options: no evaluation, no log, nothing held out for validation."""
    return {
        "num_rounds": 10**9, "num_steps": plan.local_steps, "batch_size": BATCH, "learning_rate": STEP_SIZE,
        "proportion": plan.buffer / plan.clients, "sample": "uniform", "train_holdout": 0.0, "eval_interval": -1,
        "algo_para": [plan.buffer / plan.clients, 1.0], "no_tqdm": True, "no_log_console": True,
        "log_level": "ERROR", "drop_last": True,
    }  # fmt: skip


def measure(plan: Plan) -> Report:
    """A round is the updates that arrive at one moment of virtual time."""
    os.chdir(plan.folder)
    sys.path.insert(0, plan.folder)
    Path("settings.py").write_text(CONFIG, encoding="utf-8")
    name = flgo.gen_benchmark_from_file("mnist", "settings.py", data_type="cv", task_type="classification")
    benchmark: Any = importlib.import_module(name)
    benchmark.visualize = lambda *_: None  # a picture of the split takes a minute
    flgo.gen_task_by_(benchmark, IIDPartitioner(num_clients=plan.clients), "task")
    # Subsets of current torch must have this method, which the last FLGo has not.
    FromDatasetPipe.TaskDataset.__getitems__ = lambda data, rows: [data[row] for row in rows]
    window = Window(plan, 2 * plan.buffer)
    updates = 0

    class Server(fedbuff.Server):
        """FLGo's server, which counts the updates it is given."""

        def package_handler(self, received_packages: dict[str, Any]) -> bool:
            nonlocal updates
            stepped: bool = super().package_handler(received_packages)
            updates += len(received_packages["__cid"])
            window.note(updates, Logistic.steps)
            return stepped

    fedbuff.Server = Server
    runner = flgo.init("task", fedbuff, options(plan))
    runner.register_exit_condition(lambda _server: window.is_over)
    runner.run()
    return window.report()


if __name__ == "__main__":
    run_program(measure)
