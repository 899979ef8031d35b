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
    """l2-regularised multinomial logistic regression without bias, in float32, as in the paper."""

    name: Literal["logistic"] = "logistic"
    regularisation: float = key("weight nu of (nu/2)·|W|²", 1e-3, minimum=0, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="images", minimum=1)
    weighting: Literal["share", "exact"] = key(
        "client i, with s_i of all S samples, descends (s_i/S)·f_i with `share`, n·(s_i/S)·f_i with `exact`",
        "share",
    )
    start_width: float = key("W starts uniform on (-width, width)", 0.5, minimum=0, maximum=LARGEST)
    minimiser: bool = key("solve for the minimiser first, and record the squared distance to it", False)


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Random quadratics f_i(x) = ½ (x-c_i)'H_i(x-c_i) in float64: strongly convex, minimiser known."""

    name: Literal["quadratic"] = "quadratic"
    dimension: int = key("length of x", 10, minimum=1, maximum=LARGEST_SIZE)
    curvature_min: float = key("smallest eigenvalue mu of every H_i", 1.0, minimum=SMALLEST, maximum=LARGEST)
    curvature_max: float = key("largest eigenvalue L of every H_i", 10.0, minimum=SMALLEST, maximum=LARGEST)
    heterogeneity: float = key("standard deviation of the entries of the centres c_i", 1.0, minimum=0, maximum=LARGEST)
    zeta: float | None = key(
        "max_i |x* - c_i|, to which all centres are scaled; left out: as drawn",
        None,
        minimum=0,
        maximum=LARGEST,
    )
    noise: float = key("gradient noise sigma: E|g - grad f_i|² = sigma²", 0.0, minimum=0, maximum=LARGEST)
    start_distance: float = key("distance from the minimiser at the start", 1.0, minimum=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class Robust:
    """l1 regression f_i(x) = mean_j |a_ij'x - b_ij| in float64: convex, Lipschitz, not smooth, minimiser known."""

    name: Literal["robust"] = "robust"
    dimension: int = key("length of x", 10, minimum=1, maximum=LARGEST_SIZE)
    samples: int = key(
        "samples of each client; entries of a_ij from N(0, 1)",
        50,
        unit="samples",
        minimum=1,
        maximum=LARGEST_SIZE,
    )
    heterogeneity: float = key(
        "standard deviation of the entries of z_i in b_ij = a_ij'z_i + noise", 1.0, minimum=0, maximum=LARGEST
    )
    noise: float = key("scale of the noise in b_ij, of Student's t distribution", 1.0, minimum=0, maximum=LARGEST)
    degrees: float = key("its degrees of freedom; fewer give heavier tails", 1.5, minimum=1, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key("norm of the starting point, in a random direction", 5.0, minimum=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class Median:
    """Geometric median f_i(x) = mean_j |x - a_ij| in float64: convex, 1-Lipschitz, not smooth, minimiser known."""

    name: Literal["median"] = "median"
    dimension: int = key("length of x", 10, minimum=2, maximum=LARGEST_SIZE)
    samples: int = key("points a_ij of each client", 50, unit="samples", minimum=3, maximum=LARGEST_SIZE)
    heterogeneity: float = key(
        "standard deviation of the entries of each client's centre", 1.0, minimum=0, maximum=LARGEST
    )
    spread: float = key(
        "standard deviation of the entries of a_ij about that centre", 1.0, minimum=SMALLEST, maximum=LARGEST
    )
    batch_size: int = key("mini-batch, drawn with replacement", 4, unit="samples", minimum=1)
    start_norm: float = key("norm of the starting point, in a random direction", 5.0, minimum=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class Hinge:
    """Multiclass hinge loss (Crammer and Singer) in float64; client i descends n·(s_i/S)·(its mean loss)."""

    name: Literal["hinge"] = "hinge"
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    start_width: float = key("W starts uniform on (-width, width)", 0.5, minimum=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """Any torch.nn.Module, as a flat float32 vector. It is executed: run only files that you trust."""

    name: Literal["torch"] = "torch"
    module: str = key("import path `package.module:factory` of a function (features, classes) -> torch.nn.Module")
    loss: str = key("import path of the loss (outputs, labels) -> scalar mean", "torch.nn.functional:cross_entropy")
    regularisation: float = key("weight nu of (nu/2)·|x|²", 0.0, minimum=0, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    weighting: Literal["share", "exact"] = key("as for `logistic`", "exact")


@dataclass(frozen=True, kw_only=True)
class Regression:
    """Linear regression with an intercept on data, in float64: least squares, Huber's loss or least absolute errors."""

    name: Literal["regression"] = "regression"
    loss: Literal["squared", "huber", "absolute"] = key(
        "of an error r: r²/2; or |r|; or with `huber` r²/2 up to |r| = `huber_width`, and linear beyond", "squared"
    )
    huber_width: float = key("where Huber's loss becomes linear", 1.0, minimum=SMALLEST, maximum=LARGEST)
    regularisation: float = key("weight nu of (nu/2)·|x|²", 0.0, minimum=0, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    weighting: Literal["share", "exact"] = key("as for `logistic`", "exact")
    start_width: float = key("x starts uniform on (-width, width)", 0.0, minimum=0, maximum=LARGEST)


ProblemSettings = Logistic | Quadratic | Robust | Median | Hinge | Regression | TorchModule | OwnPart
WithoutAccuracy = Quadratic | Robust | Median | Regression
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
    """Gaussian blobs, one per class, as uint8 features; the same for all trials."""

    name: Literal["synthetic"] = "synthetic"
    train_samples: int = key("training samples", 2000, unit="samples", minimum=1, maximum=LARGEST_SIZE)
    test_samples: int = key("test samples", 500, unit="samples", minimum=1, maximum=LARGEST_SIZE)
    features: int = key("features per sample", 20, minimum=1, maximum=LARGEST_SIZE)
    classes: int = key("classes", 10, minimum=2, maximum=255)
    spread: float = key(
        "standard deviation within a class, in units of the spread between classes", 1.0, minimum=0, maximum=LARGEST
    )
    seed: int = key("seed of the data", 0, minimum=0, below=2**32)


_TEST_SHARE = "share of the samples, drawn once, that are for testing"
_STANDARDISE = (
    "shift and scale each feature, and the targets of a regression, to mean 0 and standard deviation 1 over the "
    "training samples"
)

_INTERCEPT = "add a feature that is always 1: an intercept for `logistic` and `hinge`, which have none of their own"


@dataclass(frozen=True, kw_only=True)
class FashionMnist:
    """Fashion-MNIST, 60,000 training and 10,000 test images of 28×28, from four IDX files whose MD5 is checked."""

    name: Literal["fashion-mnist"] = "fashion-mnist"
    folder: str = key(
        "folder of the files, gzipped or not; the default is where Debian's package dataset-fashion-mnist has them",
        "/usr/share/datasets/fashion-mnist",
    )

    @property
    def train_samples(self) -> int:
        """Training samples."""
        return 60_000


@dataclass(frozen=True, kw_only=True)
class ScikitLearn:
    """A small table that scikit-learn carries (needs scikit-learn); `diabetes` is for regression."""

    name: Literal["scikit-learn"] = "scikit-learn"
    set: Literal["iris", "wine", "breast_cancer", "diabetes"] = key("which table")
    standardise: bool = key(_STANDARDISE, True)
    intercept: bool = key(_INTERCEPT, False)
    test_share: float = key(_TEST_SHARE, 0.2, above=0, below=1)
    seed: int = key("seed of that draw; the same for all trials", 0, minimum=0, below=2**32)


@dataclass(frozen=True, kw_only=True)
class File:
    """Samples from a file: .npz, CSV, LIBSVM text or IDX, which its content tells; gzip and bzip2 are unpacked."""

    name: Literal["file"] = "file"
    file: str = key("path of the training samples, relative to the experiment's; for IDX the images, or their folder")
    test_file: str | None = key(
        "path of the test samples; left out: those in `file`, or else a share of its samples", None
    )
    label: str | None = key("CSV: the label's column, by name or by number from 0; left out: the last one", None)
    task: Literal["classification", "regression"] = key(
        "whether labels are classes (numbers or texts), or numbers to predict with problem `regression`",
        "classification",
    )
    scale: float | None = key(
        "what all features are multiplied by; left out: 1/255 for uint8, else 1", None, above=0, maximum=LARGEST
    )
    standardise: bool = key(_STANDARDISE, False)
    intercept: bool = key(_INTERCEPT, False)
    dense: bool = key("keep LIBSVM text as a dense array, for problems that take no sparse one", False)
    test_share: float = key(_TEST_SHARE, 0.2, above=0, below=1)
    seed: int = key("seed of that draw; the same for all trials", 0, minimum=0, below=2**32)


DataSettings = Mnist | FashionMnist | Digits | ScikitLearn | Synthetic | File | OwnPart
UnknownSize = ScikitLearn | File | OwnPart  # how many samples there are is known only once they are loaded

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
    """Per client, Dirichlet shares over the classes; all clients hold equally many samples."""

    name: Literal["dirichlet-equal"] = "dirichlet-equal"
    concentration: float = key("parameter a of the Dirichlet distribution", 0.1, above=0, maximum=LARGEST)


@dataclass(frozen=True, kw_only=True)
class Iid:
    """An even split of a shuffle."""

    name: Literal["iid"] = "iid"


@dataclass(frozen=True, kw_only=True)
class NearlyIid:
    """The paper's IID split for n = 128: equally many of each label per client, the rest for the last one."""

    name: Literal["nearly-iid"] = "nearly-iid"


SplitSettings = Dirichlet | DirichletEqual | Iid | NearlyIid | OwnPart
