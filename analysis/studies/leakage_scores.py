"""How much of the held images was found: PSNR and labels under the best assignment, and a guess that knows nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Images = NDArray[np.float64]  # shape (images, pixels), from 0 to 1
Labels = NDArray[np.int64]  # shape (images,)
CEILING_DB = 60.0  # an error of a quarter of a grey level; exact images would have an infinite PSNR


@dataclass(frozen=True, eq=False)
class Picture:
    """Images with their labels."""

    images: Images
    labels: Labels


@dataclass(frozen=True, eq=False)
class Score:
    """What an attack found of the images that a victim held: mean PSNR, share of right labels."""

    psnr_db: float
    label_share: float
    partners: Picture  # for each held image what was found of it


def psnr_db(found: Images, held: Images) -> NDArray[np.float64]:
    """10 log10(1/mean squared error) of each image, at most 60 dB; shapes (..., pixels), which are broadcast."""
    squares = ((found - held) ** 2).mean(axis=-1)
    return np.asarray(np.minimum(-10 * np.log10(np.maximum(squares, 1e-30)), CEILING_DB))


def score(found: Picture, held: Picture) -> Score:
    """Pair every held image with a found one so that the squared error is least, and compare.

    If fewer images were found than are held, each stands for as many held ones as the others.
    """
    times = -(-len(held.images) // len(found.images))
    images = np.tile(found.images, (times, 1))
    labels = np.tile(found.labels, times)
    squares = (images**2).sum(axis=1) - 2 * held.images @ images.T + (held.images**2).sum(axis=1)[:, None]
    rows, columns = linear_sum_assignment(squares)
    assert (rows == np.arange(len(held.images))).all()
    partners = Picture(images[columns], labels[columns])
    return Score(
        float(psnr_db(partners.images, held.images).mean()),
        float((partners.labels == held.labels).mean()),
        partners,
    )


def guess(public: Picture) -> Picture:
    """What who knows nothing says: the mean public image and the most frequent label."""
    return Picture(public.images.mean(axis=0)[None, :], np.array([np.bincount(public.labels).argmax()]))


def class_means(public: Picture, count: int) -> Picture:
    """What who knows only the classes says of `count` images: mean images of the classes, as frequent as in public.

    Pairing with the held images helps such a guess, too: an attack has to be better.
    """
    shares = np.bincount(public.labels) / len(public.labels)
    labels = apportion(shares, count)
    means = np.stack([public.images[public.labels == label].mean(axis=0) for label in labels])
    return Picture(means, labels)


def apportion(shares: NDArray[np.float64], count: int) -> Labels:
    """`count` labels with about these shares, by the greatest remainders."""
    whole = np.floor(shares * count).astype(np.int64)
    rest = np.argsort(whole - shares * count, kind="stable")[: count - whole.sum()]
    whole[rest] += 1
    return np.repeat(np.arange(len(shares)), whole)
