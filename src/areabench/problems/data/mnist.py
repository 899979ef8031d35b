"""MNIST, which is part of the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from areabench.problems.data.images import IdxFile, ImageSet, ImageSettings

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MNIST_FILES = (
    IdxFile("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", (60_000, 28, 28), 0xF3639B56),
    IdxFile("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", (60_000,), 0x87357E3E),
    IdxFile("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", (10_000, 28, 28), 0xE4CA5F57),
    IdxFile("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", (10_000,), 0x091BDADE),
)
MNIST = ImageSet("mnist", "MNIST", MNIST_FILES, "the package", "reinstall areabench")


@dataclass(frozen=True, kw_only=True)
class Mnist(ImageSettings):
    """MNIST, 60,000 training and 10,000 test images of 28×28; part of the package."""

    name: str = "mnist"

    @property
    def images(self) -> ImageSet:
        """What the files must be."""
        return MNIST

    @property
    def source(self) -> Traversable:
        """The folder in the package."""
        from importlib import resources  # one rank per node comes here

        return resources.files("areabench") / "data" / "mnist"
