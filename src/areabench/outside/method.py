"""A method from outside the package: built, and tried on one update before a run begins."""

from __future__ import annotations

from typing import Any, NoReturn

from areabench.algorithms.base import Method, Report, Step
from areabench.experiment import Experiment
from areabench.outside.calling import blaming, call, refuse
from areabench.outside.states import state_flaw, vector_flaw
from areabench.outside_settings import OutsideMethod
from areabench.problems.base import Vector


def outside_method(settings: OutsideMethod, experiment: Experiment) -> Method:
    """The method that a function of the user's own makes."""
    clients, seed = experiment.clients.count, experiment.seed
    method = call("method", settings, clients=clients, seed=seed, step_size=settings.step_size)
    if not isinstance(method, Method):
        refuse("method", settings, f"returned {type(method).__name__}", "let it return areabench.extend.Method")
    return method


def try_method(settings: OutsideMethod, experiment: Experiment, start: Vector) -> None:
    """Take one of its own through a start, an update and a server step, and look at all that it returns."""
    trial = _Trial(settings, outside_method(settings, experiment), start, experiment.clients.count)
    with blaming("method", settings, "failed in a first trial"):
        trial.run()


class _Trial:
    """A method with one update of its first client."""

    def __init__(self, settings: OutsideMethod, method: Method, start: Vector, clients: int) -> None:
        self._settings, self._method, self._start, self._clients = settings, method, start, clients

    def run(self) -> None:
        """All five functions in turn."""
        method, start = self._method, self._start
        first = self._step("start", method.start(start), None)
        if not first.calls:
            self._refuse("start calls no client, so nobody would ever work", "name clients in Step(state, calls)")
        local = (start + 1e-3).astype(start.dtype)  # an update of nothing may be a special case
        report = method.report(self._memory("remember", method.remember(start)), start, local)
        if not isinstance(report, Report):
            self._refuse(f"report returned {type(report).__name__}", "let it return Report(payload, memory)")
        if flaw := vector_flaw(report.payload, start):
            self._refuse(f"report gave a payload that {flaw}", "send a vector like the model")
        self._memory("report", report.memory)
        received = self._step("receive", method.receive(first.state, first.calls[0], report.payload), first.state)
        self._step("aggregate", method.aggregate(received.state), first.state)

    def _step(self, where: str, step: Any, form: Any) -> Step:
        if not isinstance(step, Step):
            self._refuse(f"{where} returned {type(step).__name__}", "let it return Step(state, calls)")
        if flaw := state_flaw(step.state, self._start, form):
            self._refuse(f"{where} returned a state that {flaw}", "see docs/extending.md for what a state may hold")
        known = range(self._clients)
        if not isinstance(step.calls, tuple) or any(type(each) is not int or each not in known for each in step.calls):
            self._refuse(f"{where} calls {step.calls!r}", f"give a tuple of clients from 0 to {self._clients - 1}")
        return step

    def _memory(self, where: str, memory: Any) -> Vector | None:
        if memory is not None and (flaw := vector_flaw(memory, self._start)):
            self._refuse(f"{where} gave a memory that {flaw}", "remember a vector like the model, or None")
        return memory  # type: ignore[no-any-return]  # it is a vector, or nothing

    def _refuse(self, trouble: str, remedy: str) -> NoReturn:
        """Say what is wrong with it."""
        refuse("method", self._settings, trouble, remedy)
