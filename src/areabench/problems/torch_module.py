"""The problem `torch`: what an experiment says of a module. torch itself is imported when the problem is built."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from areabench.plugins.callables import installed_only
from areabench.problems.base import ClientData, Problem, ProblemSettings
from areabench.settings.keys import key
from areabench.settings.limits import LARGEST


@dataclass(frozen=True, kw_only=True)
class TorchModule(ProblemSettings):
    """Any torch.nn.Module, as a flat float32 vector. It is executed: run only files that you trust."""

    name: str = "torch"
    module: str = key("import path `package.module:factory` of a function (features, classes) -> torch.nn.Module")
    loss: str = key("import path of the loss (outputs, labels) -> scalar mean", "torch.nn.functional:cross_entropy")
    regularisation: float = key("weight nu of (nu/2)·|x|²", 0.0, minimum=0, maximum=LARGEST)
    batch_size: int = key("mini-batch, drawn with replacement", 32, unit="samples", minimum=1)
    weighting: Literal["share", "exact"] = key("as for `logistic`", "exact")

    @property
    def named_code(self) -> tuple[str, ...]:
        """The module and its loss."""
        return (self.module, self.loss)

    def load_libraries(self) -> None:
        """Import torch, which is not the user's."""
        with installed_only():
            import_module("areabench.problems.torch_flat")

    def build(self, held: ClientData | None, clients: int, local_steps: int, seed: int) -> Problem:
        """The problem with these settings."""
        from areabench.problems.torch_flat import TorchProblem

        assert held is not None
        return TorchProblem(self, held.data, held.parts, local_steps, seed)
