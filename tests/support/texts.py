"""Small experiments that several tests write to files."""

from __future__ import annotations


def quadratic(
    stop: str = "iterations = 20", *, name: str = "tiny", clients: int = 2, step_size: float = 0.05, dimension: int = 3
) -> str:
    """AREA on a small quadratic; more sections may be appended."""
    return f"""
name = "{name}"
[clients]
count = {clients}
[method]
name = "area"
step_size = {step_size}
[stop]
{stop}
[problem]
name = "quadratic"
dimension = {dimension}
"""


QUADRATIC = quadratic()
SWEEP = (
    quadratic("horizon_s = 1.0", name="small")
    + """
[sweep]
trials = 2
[[sweep.grid]]
method.step_size = [0.1, 0.2]
"""
)  # four runs
BLOBS = """
[data]
name = "synthetic"
train_samples = 40
test_samples = 10
features = 3
classes = 3
"""


def logistic(stop: str = "iterations = 20", *, name: str = "tiny", clients: int = 2, step_size: float = 0.05) -> str:
    """AREA on logistic regression with forty samples; more sections may be appended."""
    text = quadratic(stop, name=name, clients=clients, step_size=step_size)
    return text.replace('"quadratic"\ndimension = 3', '"logistic"') + BLOBS


LOGISTIC = logistic()
