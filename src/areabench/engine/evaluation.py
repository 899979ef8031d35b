"""Loss and accuracy of snapshots: after the clock has stopped, or beside it where a target ends the run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.experiment.experiment import Stop
from areabench.problems.base import ONE_ENTRY_PER_MODEL, Metrics, Problem, wrong_metrics
from areabench.threads import limited_threads


def loss_wanted(count: int, loss_every: int) -> NDArray[np.bool_]:
    """Which of a run's snapshots have their training loss computed: every `loss_every`-th and the last."""
    wanted: NDArray[np.bool_] = np.arange(count) % loss_every == 0
    wanted[-1:] = True
    return wanted


@limited_threads()
def evaluate_models(
    problem: Problem, names: Sequence[Hashable], models: Sequence[Vector], wanted: NDArray[np.bool_]
) -> Metrics:
    """Quality of models, the loss where wanted; models of equal name are equal and evaluated once."""
    if not names:
        return Metrics.of([])
    with_loss = {name for name, chosen in zip(names, wanted, strict=True) if chosen}
    distinct = dict(zip(names, models, strict=True))
    parts = {chosen: [name for name in distinct if (name in with_loss) == chosen] for chosen in (True, False)}
    found = []
    for chosen, part in parts.items():
        if not part:  # a problem is never asked about no models
            continue
        metrics = problem.evaluate([distinct[name] for name in part], with_loss=chosen)
        if wrong := wrong_metrics(metrics, len(part)):
            raise ValueError(f"evaluate() {wrong}; {ONE_ENTRY_PER_MODEL}")
        found.append(metrics)
    # Back to one entry per name, in the order of the names.
    place = {name: number for number, name in enumerate(parts[True] + parts[False])}
    order = np.array([place[name] for name in names], dtype=np.intp)
    columns = {
        item.name: np.concatenate([getattr(part, item.name) for part in found])[order] for item in fields(Metrics)
    }
    columns["train_loss"] = np.where(wanted, columns["train_loss"], np.nan)
    return Metrics(**columns)


def evaluate_model(problem: Problem, model: Vector) -> dict[str, float]:
    """Quality of one model, by the names of `Metrics`; a run that continues may have diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = evaluate_models(problem, [0], [model], np.ones(1, np.bool_))
    return {item.name: float(getattr(found, item.name)[0]) for item in fields(Metrics)}


def evaluate_blocks(
    problem: Problem, blocks: Iterable[Sequence[Vector]], names: Sequence[Hashable], loss_every: int
) -> list[Metrics]:
    """Metrics of a run's models, one block at a time; models of equal name are equal.

    BLAS rounds a product of many models in another way than that of few, so a replay must use the same blocks.
    """
    wanted = loss_wanted(len(names), loss_every)
    found: list[Metrics] = []
    first = 0
    for models in blocks:
        block = slice(first, first + len(models))
        found.append(evaluate_models(problem, names[block], models, wanted[block]))
        first = block.stop
    return found


def target_met(stop: Stop, metrics: Metrics) -> str | None:
    """Which target the (one) evaluated model meets, in words."""
    accuracy = float(metrics.test_accuracy[-1])
    loss = float(metrics.train_loss[-1])
    if stop.target_accuracy is not None and accuracy >= stop.target_accuracy:
        return f"test accuracy {accuracy:.2f} % >= {stop.target_accuracy:g} %"
    if stop.target_loss is not None and loss <= stop.target_loss:
        return f"training loss {loss:.6g} <= {stop.target_loss:g}"
    return None


class NoTarget:
    """The watch of a run without target."""

    def offer(self, time_s: float, model: Vector) -> None:
        """Ignore the snapshot."""

    def reached(self) -> str | None:
        """Never."""
        return None

    def conclude(self) -> str | None:
        """Never."""
        return None


class VirtualWatch:
    """Evaluates every snapshot at once: for a clock that does not advance."""

    def __init__(self, stop: Stop, problem: Problem) -> None:
        self._stop = stop
        self._problem = problem
        self._found: str | None = None

    def offer(self, time_s: float, model: Vector) -> None:
        """Evaluate a snapshot, unless an earlier one met the target."""
        if self._found is None:
            self._found = _found_at(time_s, self._stop, self._problem, model)

    def reached(self) -> str | None:
        """What was reached and when."""
        return self._found

    conclude = reached


class BackgroundWatch:
    """Evaluates snapshots on a thread of its own; snapshots that are offered while it is busy are skipped."""

    def __init__(self, stop: Stop, problem: Problem) -> None:
        self._stop = stop
        self._problem = problem
        self._pool = ThreadPoolExecutor(1)
        self._under_way: Future[str | None] | None = None
        self._latest: tuple[float, Vector] | None = None
        self._found: str | None = None

    def offer(self, time_s: float, model: Vector) -> None:
        """Begin to evaluate a snapshot unless another is being evaluated."""
        self._latest = (time_s, model)
        if self._under_way is None and self._found is None:
            self._under_way = self._pool.submit(_found_at, time_s, self._stop, self._problem, model)

    def reached(self) -> str | None:
        """What was reached and when; an exception of the evaluation comes out here."""
        if self._under_way is not None and self._under_way.done():
            self._found = self._under_way.result()
            self._under_way = None
        return self._found

    def conclude(self) -> str | None:
        """What was reached and when, now that the run is over: waits, and looks at the last snapshot too.

        An exception of the evaluation takes nothing from a run that has ended.
        """
        with suppress(Exception, SystemExit):
            if self._under_way is not None:
                self._found = self._under_way.result()
                self._under_way = None
            if self._found is None and self._latest is not None:
                time_s, model = self._latest
                self._found = _found_at(time_s, self._stop, self._problem, model)
        return self._found

    def close(self) -> None:
        """Wait for a running evaluation."""
        self._pool.shutdown(cancel_futures=True)


def _found_at(time_s: float, stop: Stop, problem: Problem, model: Vector) -> str | None:
    """Which target a snapshot meets and when, in words."""
    met = target_met(stop, problem.evaluate([model]))
    return f"{met} at {time_s:g} s" if met else None
