"""Gradient matching: look for images and labels whose rounds give what the server has observed.

The unknowns are images, kept from 0 to 1, and scores of their labels. Where a round has few images, each local step
has its own. Where it has many, the form is reduced: all M local steps use the same few images, and each of these
stands for several held ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from studies.leakage_scores import Picture, apportion

Floats = NDArray[np.float64]
MOST_IMAGES = 40  # unknown images of an observation, beyond which the form is reduced
REDUCED_IMAGES = 16  # unknown images of all rounds together in the reduced form
_BLUR = 0.1  # standard deviation of the noise that tells the unknown images apart at the start


@dataclass(frozen=True)
class Effort:
    """How long is looked for images."""

    iterations: int = 300  # of L-BFGS-B, for one local step
    deep_iterations: int = 120  # for several, and in the reduced form
    starts: int = 2  # for one local step with few images; otherwise there is one start
    few_images: int = 16


@dataclass(frozen=True)
class Form:
    """How many images are looked for: rounds, local steps with images of their own (1 if reduced), images per step."""

    rounds: int
    steps: int
    images: int
    reduced: bool

    @property
    def count(self) -> int:
        """All unknown images."""
        return self.rounds * self.steps * self.images


def form_of(rounds: int, local_steps: int, batch_size: int) -> Form:
    """One image for each that was used, or the reduced form."""
    if rounds * local_steps * batch_size <= MOST_IMAGES:
        return Form(rounds, local_steps, batch_size, reduced=False)
    return Form(rounds, 1, max(1, REDUCED_IMAGES // rounds), reduced=True)


@dataclass(frozen=True, eq=False)
class Unknowns:
    """Images (rounds, steps, images, pixels) and scores of their labels (rounds, steps, images, classes)."""

    images: Floats
    scores: Floats

    @property
    def labels(self) -> Floats:
        """The labels as probabilities."""
        return softmax(self.scores)


def softmax(scores: Floats) -> Floats:
    """Probabilities along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


Misfit = Callable[[Unknowns], tuple[float, Unknowns]]  # how far off the unknowns are, and its derivative


@dataclass(frozen=True, eq=False)
class FirstGuess:
    """Where matching starts: mean images, and labels in about the given numbers, shape (classes,).

    Labels of rounds with a negative sign are among those with a negative number.
    """

    form: Form
    signs: tuple[int, ...]
    mean_image: Floats
    counts: Floats

    def draw(self, generator: np.random.Generator) -> Unknowns:
        """A start, with a little noise."""
        shape = (self.form.steps, self.form.images)
        classes = len(self.counts)
        noise = _BLUR * generator.standard_normal((self.form.rounds, *shape, len(self.mean_image)))
        scores = np.empty((self.form.rounds, *shape, classes))
        for sign in sorted(set(self.signs)):
            own = np.array(self.signs) == sign
            shares = np.maximum(sign * self.counts, 0.0) + 1e-9
            labels = apportion(shares / shares.sum(), int(own.sum()) * self.form.steps * self.form.images)
            scores[own] = 2.0 * np.eye(classes)[generator.permutation(labels)].reshape(-1, *shape, classes)
        return Unknowns(np.clip(self.mean_image + noise, 0.0, 1.0), scores)


def best_match(misfit: Misfit, start: FirstGuess, generator: np.random.Generator, effort: Effort) -> Unknowns:
    """The best match of some starts."""
    deep = start.form.steps > 1 or start.form.reduced
    iterations = effort.deep_iterations if deep else effort.iterations
    tries = 1 if deep or start.form.count > effort.few_images else effort.starts
    matches = [match(misfit, start.draw(generator), iterations) for _ in range(tries)]
    return min(matches, key=lambda each: each[1])[0]


def match(misfit: Misfit, start: Unknowns, iterations: int) -> tuple[Unknowns, float]:
    """The unknowns with the least misfit near the start, by L-BFGS-B, and that misfit."""
    cut = start.images.size
    shape = start.images.shape

    def packed(unknowns: Unknowns) -> Floats:
        return np.concatenate([unknowns.images.ravel(), unknowns.scores.ravel()])

    def unpacked(values: Floats) -> Unknowns:
        return Unknowns(values[:cut].reshape(shape), values[cut:].reshape(start.scores.shape))

    def value_and_slope(values: Floats) -> tuple[float, Floats]:
        value, slope = misfit(unpacked(values))
        return value, packed(slope)

    low = np.concatenate([np.zeros(cut), np.full(start.scores.size, -10.0)])
    high = np.concatenate([np.ones(cut), np.full(start.scores.size, 10.0)])
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-14, "gtol": 1e-12}
    found = minimize(
        value_and_slope, packed(start), jac=True, method="L-BFGS-B", bounds=np.stack([low, high], axis=1),
        options=options,
    )  # fmt: skip
    return unpacked(found.x), float(found.fun)


def wanted_picture(unknowns: Unknowns, wanted: int) -> Picture:
    """The images of the first `wanted` rounds, and their likeliest labels."""
    images = unknowns.images[:wanted]
    return Picture(
        images.reshape(-1, images.shape[-1]), unknowns.scores[:wanted].argmax(axis=-1).reshape(-1).astype(np.int64)
    )
