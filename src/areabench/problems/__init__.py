"""What is optimised, on which data, and who holds which samples: each problem, data set and split is one file.

A part's file has its settings, what it needs, and how it is built. Here it has a line.
"""

from areabench.problems.data.own import OwnData
from areabench.problems.own import OwnProblem
from areabench.problems.splits.own import OwnSplit
from areabench.settings.parts import Parts

PROBLEMS = Parts(
    "problems",
    {
        "logistic": "logistic",
        "quadratic": "quadratic",
        "robust": "robust",
        "median": "median",
        "hinge": "hinge",
        "regression": "regression",
        "torch": "torch_module",
    },
    own=OwnProblem,
)
DATASETS = Parts(
    "problems.data",
    {
        "mnist": "mnist",
        "fashion-mnist": "fashion_mnist",
        "digits": "digits",
        "scikit-learn": "scikit_learn",
        "synthetic": "synthetic",
        "file": "file",
    },
    own=OwnData,
)
SPLITS = Parts(
    "problems.splits",
    {
        "dirichlet": "dirichlet",
        "dirichlet-equal": "dirichlet_equal",
        "iid": "iid",
        "nearly-iid": "nearly_iid",
    },
    own=OwnSplit,
)
