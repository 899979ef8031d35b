"""All methods by name: the module that has each, and what a user wants to know before choosing one.

Every module of a method has `build(settings, given) -> Method`. It is imported where the method is built.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from areabench.experiment.method_records import Local
from areabench.methods.base import Given, Method
from areabench.methods.local import with_local


class About(NamedTuple):
    """A method in words."""

    module: str
    chooses: str  # who decides which client works next
    limit: str  # where the method ends under uneven rates, without noise: "exact", or what it is biased towards
    memory: str  # of the server, in vectors of the model's length d
    paper: str


CATALOGUE: dict[str, About] = {
    "area": About(
        "area", "clients", "exact", "2 d", "Iakovidou and Kim, Asynchronous Federated Stochastic Optimization"
    ),
    "as-fedavg": About("as_fedavg", "clients", "biased to fast clients", "2 d", "McMahan et al., AISTATS 2017"),
    "fedbuff": About("fedbuff", "clients", "biased to fast clients", "2 d", "Nguyen et al., AISTATS 2022"),
    "s-fedavg": About("s_fedavg", "server, uniformly", "exact for M = 1", "2 d", "McMahan et al., AISTATS 2017"),
    # asynchronous SGD
    "async-sgd": About(
        "async_sgd",
        "clients, or the server by `assignment`",
        "biased to fast clients; exact if drawn uniformly, by importance or shuffled",
        "2 d",
        "Mishchenko et al., NeurIPS 2022",
    ),
    # buffered
    "fedbuff-published": About(
        "fedbuff_published",
        "server, uniformly among idle ones",
        "biased to fast clients, less where fewer work",
        "2 d + n",
        "Nguyen et al., AISTATS 2022",
    ),
    "fedfix": About("fedfix", "server: who has answered", "exact on average", "2 d + n", "Fraboni et al., JMLR 2023"),
    "fedstaleweight": About(
        "fedstaleweight", "clients", "biased to fast clients, less for a large Delta", "2 d + 2 n", "Ma et al., 2024"
    ),
    "server-momentum": About(
        "server_optimisers", "clients", "biased to fast clients", "3 d", "Nguyen et al., AISTATS 2022"
    ),
    "server-adam": About("server_optimisers", "clients", "biased to fast clients", "4 d", "Reddi et al., ICLR 2021"),
    "fadas": About("server_optimisers", "clients", "biased to fast clients", "5 d", "Wang et al., ICML 2024"),
    # mixing
    "fedasync": About("fedasync", "clients", "biased to fast clients, more if scaled", "2 d", "Xie et al., 2019"),
    "asyncfeded": About("asyncfeded", "clients", "biased to fast clients", "2 d", "Wang et al., 2022"),
    # with memory
    "ca2fl": About("ca2fl", "clients", "exact", "3 d", "Wang et al., ICLR 2024"),
    "afa-cs": About("gradient_tables", "clients", "exact", "2 d", "Yang et al., ICML 2022"),
    "ia2sgd": About("gradient_tables", "clients", "exact", "2 d", "submission m3x4kDbYAK to ICLR 2025"),
    "dude": About("gradient_tables", "clients", "exact", "2 d", "Wang et al., arXiv:2405.16966, 2024"),
    "ace": About("gradient_tables", "clients", "exact", "2 d", "Chang et al., arXiv:2511.19066, 2025"),
    "aced": About(
        "aced",
        "clients",
        "biased to fast clients where entries expire",
        "(n + 2) d",
        "Chang et al., arXiv:2511.19066, 2025",
    ),
    "afa-cd": About("afa_cd", "clients", "biased to fast clients", "2 d", "Yang et al., ICML 2022"),
    "mifa": About("mifa", "server: all that are free, in each round", "exact", "2 d", "Gu et al., NeurIPS 2021"),
    # optimal time
    "ringmaster": About("ringmaster", "clients", "biased to fast clients", "2 d", "Maranjyan et al., ICML 2025"),
    "rennala": About("rennala", "clients", "biased to fast clients", "2 d", "Tyurin and Richtárik, NeurIPS 2023"),
    "malenia": About("malenia", "clients", "exact", "(n + 1) d", "Tyurin and Richtárik, NeurIPS 2023"),
    "ringleader": About("ringleader", "clients", "exact", "(n + 3) d", "Maranjyan and Richtárik, ICLR 2026"),
    # local work
    "asynccomm-sgd": About(
        "asynccomm_sgd", "clients", "exact as steps fall", "2 d", "Avdiukhin and Kasiviswanathan, ICML 2021"
    ),
    "fedcompass": About("fedcompass", "clients", "biased to fast clients", "(1 + groups) d", "Li et al., ICLR 2024"),
    "quafl": About("quafl", "server, uniformly", "biased to fast clients", "2 d", "Zakerinia et al., AISTATS 2024"),
    "favas": About("favas", "server, uniformly", "exact for small steps", "2 d", "Leconte et al., 2023"),
}


_NOTHING_LOCAL = Local()


def build_method(settings: Any, given: Given, local: Local = _NOTHING_LOCAL) -> Method:
    """The method that `settings` name, one of areabench's own, with what [local] adds to it."""
    module = import_module(f"areabench.methods.{CATALOGUE[settings.name].module}")
    method: Method = module.build(settings, given)
    return with_local(method, local, given.clients)
