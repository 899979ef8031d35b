"""Images from pseudo-gradients of a small convolutional network, by matching; needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from studies.leakage_matching import Effort, FirstGuess, Floats, Unknowns, best_match, form_of, wanted_picture
from studies.leakage_observations import Observation
from studies.leakage_scores import Picture

_ROUGHNESS = 1e-5  # weight of the total variation, which holds images back from noise that explains nothing


def small_cnn(features: int, classes: int) -> Any:
    """Two convolutions and a linear layer for square images; tanh, because matching differentiates twice."""
    from torch import nn

    side = round(features**0.5)
    left = (((side + 1) // 2) + 1) // 2
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Conv2d(8, 16, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16 * left * left, classes),
    )


@dataclass(frozen=True, eq=False)
class NetworkRound:
    """What the server knows of all rounds; the rate is in the message."""

    module: Any  # in double precision; its own parameters are not used
    classes: int
    local_steps: int  # M
    batch_size: int


class NetworkMisfit:
    """|sum of signed pseudo-gradients - observed|²/|observed|² plus a little total variation, and its derivative."""

    def __init__(self, observation: Observation, known: NetworkRound) -> None:
        import torch

        self._torch = torch
        self._known = known
        self._rates = [each.rate for each in observation.rounds]
        self._names = [name for name, _ in known.module.named_parameters()]
        self._shapes = [parameter.shape for _, parameter in known.module.named_parameters()]
        self._sent = [self._pieces(each.sent) for each in observation.rounds]
        self._signs, self._total = observation.signs, self._tensor(observation.total)
        self._scale = max(float((observation.total**2).sum()), 1e-300)

    def _tensor(self, values: Any) -> Any:
        return self._torch.tensor(np.asarray(values), dtype=self._torch.float64)

    def _pieces(self, vector: Any) -> list[Any]:
        """A model as the module's parameters."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        return [
            piece.view(shape).requires_grad_()
            for piece, shape in zip(self._tensor(vector).split(sizes), self._shapes, strict=True)
        ]

    def __call__(self, unknowns: Unknowns) -> tuple[float, Unknowns]:
        """Forward through the M local steps of each round, and back."""
        torch = self._torch
        images, scores = (self._tensor(each).requires_grad_() for each in (unknowns.images, unknowns.scores))
        labels = torch.softmax(scores, dim=-1)
        total = -self._total
        for number, (sent, sign) in enumerate(zip(self._sent, self._signs, strict=True)):
            rate = self._rates[number]
            total = total + sign * self._pseudo_gradient(sent, rate, images[number], labels[number])
        misfit = (total**2).sum() / self._scale + _ROUGHNESS * _variation(images)
        slopes = torch.autograd.grad(misfit, (images, scores))
        return float(misfit.detach()), Unknowns(*(slope.numpy() for slope in slopes))

    def _pseudo_gradient(self, sent: list[Any], rate: float, images: Any, labels: Any) -> Any:
        torch = self._torch
        parameters = sent
        for step in range(self._known.local_steps):
            own = min(step, len(images) - 1)  # in the reduced form all steps have the same images
            named = dict(zip(self._names, parameters, strict=True))
            outputs = torch.func.functional_call(self._known.module, named, (images[own],))
            loss = -(labels[own] * torch.log_softmax(outputs, dim=-1)).sum(dim=-1).mean()
            slopes = torch.autograd.grad(loss, parameters, create_graph=True)
            parameters = [parameter - rate * slope for parameter, slope in zip(parameters, slopes, strict=True)]
        return torch.cat([(old - new).reshape(-1) for old, new in zip(sent, parameters, strict=True)])


def _variation(images: Any) -> Any:
    """The sum of squared differences of neighbouring pixels, per image."""
    side = round(images.shape[-1] ** 0.5)
    square = images.reshape(-1, side, side)
    across = square[:, :, 1:] - square[:, :, :-1]
    down = square[:, 1:] - square[:, :-1]
    return ((across**2).sum() + (down**2).sum()) / len(square)


def match_images(
    observation: Observation, known: NetworkRound, mean_image: Floats, generator: np.random.Generator, effort: Effort
) -> Picture:
    """Images and labels of the wanted rounds, by matching; nothing is assumed about the labels."""
    form = form_of(len(observation.rounds), known.local_steps, known.batch_size)
    start = FirstGuess(form, observation.signs, mean_image, np.zeros(known.classes))
    found = best_match(NetworkMisfit(observation, known), start, generator, effort)
    return wanted_picture(found, observation.wanted)
