"""Flower's simulation: synchronous rounds of FedAvg with all clients, which Ray's actors compute, one per core."""

from __future__ import annotations

import logging

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers.torch_work import Logistic, client_samples, train
from peers.window import BATCH, Plan, Report, Window, run_program


def client_app(plan: Plan) -> ClientApp:
    """What a client does with a message; the training loop is the user's in Flower, here torch's plain one."""
    app = ClientApp()

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        data = client_samples(plan)[int(context.node_config["partition-id"])]
        model = Logistic()
        before = Logistic.steps
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        train(model, data, plan.local_steps)
        metrics = MetricRecord({"num-examples": BATCH * plan.local_steps, "steps": Logistic.steps - before})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def server_app(plan: Plan, window: Window) -> ServerApp:
    """The rounds of FedAvg as its `start` makes them, without evaluation, until the window is over."""
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, _context: Context) -> None:
        strategy = FedAvg(min_available_nodes=plan.clients)
        arrays = ArrayRecord(Logistic().state_dict())
        rounds = updates = local_steps = 0
        while not window.is_over:
            rounds += 1
            messages = strategy.configure_train(rounds, arrays, ConfigRecord(), grid)
            replies = list(grid.send_and_receive(messages, timeout=600))
            arrays, _ = strategy.aggregate_train(rounds, replies)
            updates += len(replies)
            local_steps += sum(int(reply.content["metrics"]["steps"]) for reply in replies)
            window.note(updates, local_steps)

    return app


def measure(plan: Plan) -> Report:
    """Run the simulation in Ray's processes."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    window = Window(plan, 2 * plan.clients)
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"_temp_dir": plan.folder}}
    run_simulation(server_app(plan, window), client_app(plan), plan.clients, backend_config=backend)
    return window.report()


if __name__ == "__main__":
    run_program(measure)
