"""Images from pseudo-gradients of logistic regression: in closed form, and by matching through the local steps.

The gradient of one sample is (p - e_y) x', with the class probabilities p: its rows are multiples of the image, and
that of the label is the negative one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from studies.leakage_matching import (
    Effort,
    FirstGuess,
    Floats,
    Unknowns,
    best_match,
    form_of,
    softmax,
    wanted_picture,
)
from studies.leakage_observations import Observation
from studies.leakage_scores import Picture

_SCALES = 400  # tried for the image of the closed form


@dataclass(frozen=True, eq=False)
class LogisticRound:
    """What the server knows of all rounds: W <- (1 - rate nu) W - rate·(mean of the gradients), M times.

    The rate is in the message: alpha times the client's weight.
    """

    classes: int
    regularisation: float  # nu
    local_steps: int  # M
    batch_size: int

    def matrix(self, vector: NDArray[np.floating]) -> Floats:
        """A model or a pseudo-gradient as a matrix, shape (classes, features)."""
        return vector.astype(np.float64).reshape(self.classes, -1)


# ---------------------------------------------------------------------------------------------------- closed form


def closed_form(observation: Observation, known: LogisticRound) -> Picture:
    """The image and the label of one local step on one image."""
    model = known.matrix(observation.rounds[0].sent)
    gradient = known.matrix(observation.total) / observation.rounds[0].rate - known.regularisation * model
    label = int(gradient.sum(axis=1).argmin())
    direction = np.maximum(-gradient[label], 0.0)  # (1 - p_y) x
    return Picture(_scaled(model, gradient, direction, label)[None, :], np.array([label]))


def _scaled(model: Floats, gradient: Floats, direction: Floats, label: int) -> Floats:
    """The image x = t·direction whose own probabilities explain the gradient best; no pixel is above 1."""
    brightest = float(direction.max())
    if brightest == 0.0:
        return direction
    most = max(1.0, 1.0 / brightest)
    low = 1.0
    high = most
    for _ in range(3):  # finer each time
        scales = np.geomspace(low, high, _SCALES)
        factors = softmax(scales[:, None] * (model @ direction)) - np.eye(len(model))[label]
        weights = scales[:, None] * factors  # the gradient is weights × direction
        misfits = (weights**2).sum(axis=1) * (direction @ direction) - 2 * weights @ (gradient @ direction)
        best = int(misfits.argmin())
        low = scales[max(best - 1, 0)]
        high = scales[min(best + 1, _SCALES - 1)]
    return np.asarray(np.minimum(scales[best] * direction, 1.0))


# ---------------------------------------------------------------------------------------------------- matching


class LogisticMisfit:
    """|sum of signed pseudo-gradients - observed|²/|observed|² of unknown images, and its derivative."""

    def __init__(self, observation: Observation, known: LogisticRound) -> None:
        self._models = np.stack([known.matrix(each.sent) for each in observation.rounds])
        self._rates = np.array([each.rate for each in observation.rounds])[:, None, None]
        self._signs = np.array(observation.signs, dtype=np.float64)[:, None, None]
        self._total = known.matrix(observation.total)
        self._known = known
        self._scale = max(float((self._total**2).sum()), 1e-300)

    def __call__(self, unknowns: Unknowns) -> tuple[float, Unknowns]:
        """Forward through the M local steps of all rounds at once, and back."""
        images = unknowns.images
        labels = unknowns.labels
        known = self._known
        kept = 1 - self._rates * known.regularisation
        share = self._rates / images.shape[2]
        weights = self._models
        models = []
        probabilities = []
        for step in range(known.local_steps):
            own = min(step, images.shape[1] - 1)  # in the reduced form all steps have the same images
            found = softmax(images[:, own] @ weights.transpose(0, 2, 1))  # (rounds, images, classes)
            models.append(weights)
            probabilities.append(found)
            weights = kept * weights - share * (found - labels[:, own]).transpose(0, 2, 1) @ images[:, own]
        residual = (self._signs * (self._models - weights)).sum(axis=0) - self._total
        slopes = Unknowns(np.zeros_like(images), np.zeros_like(labels))
        pull = (
            -2 / self._scale * self._signs * residual
        )  # the derivative by the weights, shape (rounds, classes, pixels)
        for step in reversed(range(known.local_steps)):
            own = min(step, images.shape[1] - 1)
            along = images[:, own] @ pull.transpose(0, 2, 1)
            found = probabilities[step]
            bent = found * (along - (found * along).sum(axis=-1, keepdims=True))
            slopes.images[:, own] -= share * ((found - labels[:, own]) @ pull + bent @ models[step])
            slopes.scores[:, own] += share * along
            pull = kept * pull - share * bent.transpose(0, 2, 1) @ images[:, own]
        through = labels * (slopes.scores - (labels * slopes.scores).sum(axis=-1, keepdims=True))
        return float((residual**2).sum() / self._scale), Unknowns(slopes.images, through)


def label_counts(observation: Observation, known: LogisticRound, public: Picture) -> Floats:
    """Estimated numbers of the labels, shape (classes,); those of rounds with a negative sign count negatively.

    An image of class y adds brightness·(p - e_y) to the row sums of a gradient. Public images say how bright a class is
    and what p it gets from the model, on average; the numbers are the non-negative ones that fit the sums best.
    """
    total = known.matrix(observation.total)
    classes = known.classes
    signs = observation.signs
    effects = {sign: np.zeros((classes, classes)) for sign in signs}  # of an image of each class on the row sums
    for each, sign in zip(observation.rounds, signs, strict=True):
        total -= sign * each.rate * known.local_steps * known.regularisation * known.matrix(each.sent)
        models = [known.matrix(each.sent)]
        if len(signs) == 1:  # the model at the end of the round is known as well
            models.append(models[0] - known.matrix(observation.total))
        share = each.rate / known.batch_size / signs.count(sign) / len(models)
        for model in models:
            effects[sign] += sign * share * _effects(model, public)
    by_row = np.concatenate(list(effects.values()), axis=1)
    size = float(np.abs(by_row).max())
    in_all = np.kron(np.eye(len(effects)), np.ones((1, classes)))  # the number of images is known
    numbers = [known.local_steps * known.batch_size * signs.count(sign) for sign in effects]
    found, _ = nnls(np.concatenate([by_row / size, in_all]), np.concatenate([total.sum(axis=1) / size, numbers]))
    return np.asarray(sum(sign * part for sign, part in zip(effects, np.split(found, len(effects)), strict=True)))


def _effects(model: Floats, public: Picture) -> Floats:
    """Row sums of the gradient of an image of each class (columns), as public images have them on average."""
    classes = len(model)
    factors = softmax(public.images @ model.T) - np.eye(classes)[public.labels]
    sums = factors * public.images.sum(axis=1, keepdims=True)
    found = np.zeros((classes, classes))
    for label in range(classes):
        if (own := public.labels == label).any():
            found[:, label] = sums[own].mean(axis=0)
    return found


def match_images(
    observation: Observation, known: LogisticRound, public: Picture, generator: np.random.Generator, effort: Effort
) -> Picture:
    """Images and labels of the wanted rounds, by matching."""
    form = form_of(len(observation.rounds), known.local_steps, known.batch_size)
    counts = label_counts(observation, known, public)
    start = FirstGuess(form, observation.signs, public.images.mean(axis=0), counts)
    found = best_match(LogisticMisfit(observation, known), start, generator, effort)
    return wanted_picture(found, observation.wanted)
