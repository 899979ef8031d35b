"""Fashion-MNIST, from four files of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from areabench.problems.data.images import IdxFile, ImageSet, ImageSettings
from areabench.settings.keys import key

FASHION_FILES = (
    IdxFile("train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a", (60_000, 28, 28), 0xAE65DCCD),
    IdxFile("train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9", (60_000,), 0xAB93C456),
    IdxFile("t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a", (10_000, 28, 28), 0x12728439),
    IdxFile("t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965", (10_000,), 0x573905E5),
)


@dataclass(frozen=True, kw_only=True)
class FashionMnist(ImageSettings):
    """Fashion-MNIST, 60,000 training and 10,000 test images of 28×28, from four IDX files whose MD5 is checked."""

    name: str = "fashion-mnist"
    folder: str = key(
        "folder of the files, gzipped or not; the default is where Debian's package dataset-fashion-mnist has them",
        "/usr/share/datasets/fashion-mnist",
        path=True,
    )

    @property
    def images(self) -> ImageSet:
        """What the files must be."""
        remedy = "install Debian's package dataset-fashion-mnist, or set data.folder to where the four IDX files are"
        return ImageSet("fashion-mnist", "Fashion-MNIST", FASHION_FILES, self.folder, remedy)

    @property
    def source(self) -> Path:
        """The user's folder."""
        return Path(self.folder)
