"""Local problems of the user, in both forms."""

from __future__ import annotations

import numpy as np
import pytest

from areabench.arrays import Vector
from areabench.engine.plugins.parts import OwnLocal
from areabench.errors import RunFailure
from areabench.experiment.fields import OwnPart

SETTINGS = OwnPart(name="mod:fn")
START = np.array([8.0])


class Rounds:
    """A local problem that knows rounds of three steps only."""

    def __init__(self) -> None:
        self.skipped = list[int]()

    def descend(self, model: Vector, step_size: float) -> Vector:
        return model - 3 * step_size

    def gradient(self, model: Vector) -> Vector:
        return np.ones_like(model)

    def skip(self, rounds: int) -> None:
        self.skipped.append(rounds)


class Steps(Rounds):
    """A local problem that takes any number of steps; it has no gradient."""

    gradient = property()  # as if there were none

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        return model - (3 if steps is None else steps) * step_size


def own(local: Rounds) -> OwnLocal:
    """The problem as a client holds it."""
    return OwnLocal(SETTINGS, local, local_steps=3)


@pytest.mark.parametrize("local", [Rounds(), Steps()])
@pytest.mark.parametrize("steps", [None, 3])
def test_both_forms_make_whole_rounds(local: Rounds, steps: int | None) -> None:
    assert own(local).descend(START, 1.0, steps).tolist() == [5.0]


def test_rounds_are_skipped_by_their_steps() -> None:
    local = Rounds()
    own(local).skip(6)
    assert local.skipped == [2]


def test_steps_are_passed_on() -> None:
    local = Steps()
    assert own(local).descend(START, 1.0, 2).tolist() == [6.0]
    own(local).skip(4)
    assert local.skipped == [4]


def test_rounds_have_no_other_number_of_steps() -> None:
    line = (
        "problem.name = 'mod:fn' has a local problem whose descend() takes no `steps`, which this method needs; "
        "let it take `steps`"
    )
    local = own(Rounds())
    for attempt in (lambda: local.descend(START, 1.0, 2), lambda: local.skip(4), lambda: local.gradient(START)):
        with pytest.raises(RunFailure) as caught:
            attempt()
        assert str(caught.value) == line


def test_a_missing_gradient_is_named() -> None:
    with pytest.raises(RunFailure) as caught:
        own(Steps()).gradient(START)
    assert str(caught.value) == (
        "problem.name = 'mod:fn' has a local problem without gradient(), which this method needs; add gradient(model)"
    )
