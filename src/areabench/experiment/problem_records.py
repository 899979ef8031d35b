"""The sections [problem], [data] and [split]: what is optimised, on which data, and who holds which samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from areabench.experiment.fields import OwnPart, key

SMALLEST, LARGEST = 1e-15, 1e15  # of a scale of a problem: squares and products stay finite, in float32 too
LARGEST_SIZE = 10**12  # of one axis: a larger one would overflow before it could be reported as not fitting into memory

# ---------------------------------------------------------------------------------------------------- problem


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """l2-regularised multinomial logistic regression without bias, in float32 (the paper's section 5)."""

    name: Literal["logistic"] = "logistic"
    regularisation: float = key("weight nu of (nu/2)·|W|²", 1e-3, minimum=0, maximum=LARGEST)
    batch_size: int = key("images in a mini-batch, drawn with replacement", 32, unit="images", minimum=1)
    weighting: Literal["share", "exact"] = key(
        "what client i descends: `share` (s_i/S)·f_i (recovered from the paper's tables) or `exact` n·(s_i/S)·f_i",
        "share",
    )
    start_width: float = key(
        "W starts uniform on (-width, width); recovered from the paper's tables", 0.5, minimum=0, maximum=LARGEST
    )
    minimiser: bool = key("solve for the minimiser before the run, and record the squared distance to it", False)


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Random strongly convex quadratics f_i(x) = ½ (x-c_i)'H_i(x-c_i) in float64, with known minimiser."""

    name: Literal["quadratic"] = "quadratic"
    dimension: int = key("length of x", 10, minimum=1, maximum=LARGEST_SIZE)
    curvature_min: float = key("smallest eigenvalue mu of every H_i", 1.0, minimum=SMALLEST, maximum=LARGEST)
    curvature_max: float = key("largest eigenvalue L of every H_i", 10.0, minimum=SMALLEST, maximum=LARGEST)
    heterogeneity: float = key("standard deviation of the entries of the centres c_i", 1.0, minimum=0, maximum=LARGEST)
    zeta: float | None = key(
        "max_i |x* - c_i|, to which all centres are scaled; left out: the centres stay as drawn",
        None,
        minimum=0,
        maximum=LARGEST,
    )
    noise: float = key("gradient noise sigma: E|g - grad f_i|² = sigma²", 0.0, minimum=0, maximum=LARGEST)
    start_distance: float = key("distance of the starting point from the minimiser", 1.0, minimum=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class Robust:
    """l1 regression f_i(x) = mean_j |a_ij'x - b_ij| in float64: convex, Lipschitz, not smooth, minimiser known."""

    name: Literal["robust"] = "robust"
    dimension: int = key("length of x", 10, minimum=1, maximum=LARGEST_SIZE)
    samples: int = key(
        "samples that each client draws: entries of a_ij from N(0, 1)",
        50,
        unit="samples",
        minimum=1,
        maximum=LARGEST_SIZE,
    )
    heterogeneity: float = key(
        "standard deviation of the entries of z_i in b_ij = a_ij'z_i + noise", 1.0, minimum=0, maximum=LARGEST
    )
    noise: float = key(
        "scale of the noise in b_ij, which has Student's t distribution", 1.0, minimum=0, maximum=LARGEST
    )
    degrees: float = key(
        "degrees of freedom of that distribution: the fewer, the heavier its tails", 1.5, minimum=1, maximum=LARGEST
    )
    batch_size: int = key("samples in a mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key(
        "norm of the starting point, which lies in a random direction", 5.0, minimum=0, maximum=LARGEST
    )


@dataclass(frozen=True, kw_only=True)
class Median:
    """Geometric median f_i(x) = mean_j |x - a_ij| in float64: convex, 1-Lipschitz, not smooth, minimiser known."""

    name: Literal["median"] = "median"
    dimension: int = key(
        "length of x; on a line the minimiser would not be unique", 10, minimum=2, maximum=LARGEST_SIZE
    )
    samples: int = key("points a_ij that each client draws", 50, unit="samples", minimum=3, maximum=LARGEST_SIZE)
    heterogeneity: float = key(
        "standard deviation of the entries of each client's centre", 1.0, minimum=0, maximum=LARGEST
    )
    spread: float = key(
        "standard deviation of the entries of a_ij about that centre", 1.0, minimum=SMALLEST, maximum=LARGEST
    )
    batch_size: int = key("points in a mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key(
        "norm of the starting point, which lies in a random direction", 5.0, minimum=0, maximum=LARGEST
    )


@dataclass(frozen=True, kw_only=True)
class Hinge:
    """Multiclass hinge loss (Crammer and Singer) in float64; client i descends n·(s_i/S)·(its mean loss)."""

    name: Literal["hinge"] = "hinge"
    batch_size: int = key("samples in a mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    start_width: float = key("W starts uniform on (-width, width)", 0.5, minimum=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """Any torch.nn.Module, as a flat float32 vector. It is executed: run only experiment files that you trust."""

    name: Literal["torch"] = "torch"
    module: str = key("import path `package.module:factory` of a function (features, classes) -> torch.nn.Module")
    loss: str = key("import path of the loss (outputs, labels) -> scalar mean", "torch.nn.functional:cross_entropy")
    regularisation: float = key("weight nu of (nu/2)·|x|²", 0.0, minimum=0, maximum=LARGEST)
    batch_size: int = key("samples in a mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    weighting: Literal["share", "exact"] = key(
        "what client i descends: `share` (s_i/S)·f_i or `exact` n·(s_i/S)·f_i", "exact"
    )


ProblemSettings = Logistic | Quadratic | Robust | Median | Hinge | TorchModule | OwnPart
DrawnSettings = Quadratic | Robust | Median  # they draw their own functions: no [data], no [split], no accuracy

# ---------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True, kw_only=True)
class Mnist:
    """MNIST, 60,000 training and 10,000 test images of 28×28; part of the package."""

    name: Literal["mnist"] = "mnist"

    @property
    def train_samples(self) -> int:
        """Training samples."""
        return 60_000


@dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's 8×8 digits: 1,437 training and 360 test images (needs scikit-learn)."""

    name: Literal["digits"] = "digits"

    @property
    def train_samples(self) -> int:
        """Training samples: four fifths of 1,797."""
        return 1437


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Gaussian blobs, one per class, as uint8 features; drawn from `seed`, the same for all trials."""

    name: Literal["synthetic"] = "synthetic"
    train_samples: int = key("training samples", 2000, unit="samples", minimum=1, maximum=LARGEST_SIZE)
    test_samples: int = key("test samples", 500, unit="samples", minimum=1, maximum=LARGEST_SIZE)
    features: int = key("features per sample", 20, minimum=1, maximum=LARGEST_SIZE)
    classes: int = key("classes", 10, minimum=2, maximum=255)
    spread: float = key(
        "standard deviation within a class, in units of the spread between classes", 1.0, minimum=0, maximum=LARGEST
    )
    seed: int = key("seed of the data; the experiment's seed does not affect them", 0, minimum=0, below=2**32)


DataSettings = Mnist | Digits | Synthetic | OwnPart

# ---------------------------------------------------------------------------------------------------- split


@dataclass(frozen=True, kw_only=True)
class Dirichlet:
    """Per class, Dirichlet shares over the clients (the paper's non-IID split)."""

    name: Literal["dirichlet"] = "dirichlet"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0, maximum=LARGEST)
    minimum: int = key(
        "least number of samples per client; `draws` says how it is reached", 1, unit="samples", minimum=1
    )
    draws: int | None = key(
        "draw all shares up to so many times, until every client has `minimum` samples, or refuse the split; left out: "
        "after 100 draws (20 beyond 1,000 clients) single samples move from the largest clients to those below it",
        None,
        minimum=1,
        maximum=1_000_000,
    )


@dataclass(frozen=True, kw_only=True)
class DirichletEqual:
    """Per client, Dirichlet shares over the classes; all clients hold the same number of samples."""

    name: Literal["dirichlet-equal"] = "dirichlet-equal"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class Iid:
    """An even split of a shuffle."""

    name: Literal["iid"] = "iid"


@dataclass(frozen=True, kw_only=True)
class NearlyIid:
    """The paper's IID split for n = 128: an equal number of each label per client, and the rest for the last one."""

    name: Literal["nearly-iid"] = "nearly-iid"


SplitSettings = Dirichlet | DirichletEqual | Iid | NearlyIid | OwnPart
