"""Methods, one per file, with schedules and aggregation criteria: rules without clock, rank or file.

A method's file has its settings with what is to be known about it, and its rule. Here it has a line.
"""

from areabench.methods.own import OwnMethod
from areabench.settings.parts import Parts

METHODS = Parts(
    "methods",
    {
        "area": "area",
        "fedbuff": "fedbuff",
        "as-fedavg": "as_fedavg",
        "s-fedavg": "s_fedavg",
        "async-sgd": "async_sgd",
        "fedbuff-published": "fedbuff_published",
        "fedfix": "fedfix",
        "fedstaleweight": "fedstaleweight",
        "server-momentum": "server_optimisers",
        "server-adam": "server_optimisers",
        "fadas": "server_optimisers",
        "fedasync": "fedasync",
        "asyncfeded": "asyncfeded",
        "ca2fl": "ca2fl",
        "afa-cs": "gradient_tables",
        "ia2sgd": "gradient_tables",
        "dude": "gradient_tables",
        "ace": "gradient_tables",
        "aced": "aced",
        "afa-cd": "afa_cd",
        "mifa": "mifa",
        "ringmaster": "ringmaster",
        "rennala": "rennala",
        "malenia": "malenia",
        "ringleader": "ringleader",
        "asynccomm-sgd": "asynccomm_sgd",
        "fedcompass": "fedcompass",
        "quafl": "quafl",
        "favas": "favas",
    },
    own=OwnMethod,
)

SCHEDULES = Parts(
    "methods",
    {
        "constant": "schedules",
        "1/k": "schedules",
        "1/sqrt(k)": "schedules",
        "1/t": "schedules",
        "1/sqrt(t)": "schedules",
        "theorem1": "schedules",
        "theorem2": "schedules",
    },
)
AGGREGATIONS = Parts("methods", {"updates": "criteria", "period": "criteria", "poisson": "criteria"})
