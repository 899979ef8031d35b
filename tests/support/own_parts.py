"""Experiments with a part from a module `mine.py` beside them, as small as they can be."""

from __future__ import annotations

from pathlib import Path

METHOD = """
from typing import NamedTuple
import numpy as np
from areabench.extend import Buffer, Call, Method, Report, Step

class State(NamedTuple):
    model: np.ndarray
    buffer: Buffer = Buffer()
    {fields}

def make(clients, {parameters}):
    def remember(start):
        return {memory}
    def report(memory, work):
        return {report}
    def start(model):
        return Step(State(model), {calls})
    def receive(state, arrival):
        return Step(state._replace(buffer=state.buffer.add(arrival.payload)), (arrival.client,))
    def aggregate(state):
        {aggregate}
        return Step({after})
    return {method}
"""
METHOD_DEFAULTS = {
    "fields": "",
    "parameters": "gain: float = 1.0",
    "memory": "None",
    "report": "Report(work.local - work.model, None)",
    "calls": "tuple(range(clients))",
    "aggregate": "pass",
    "after": "State(state.model + gain * state.buffer.mean())",
    "method": 'Method("mine", remember, report, start, receive, aggregate)',
}
PROBLEM = '''
import numpy as np
from areabench.extend import Metrics, Purpose, stream

class Bowl:
    """f_i(x) = |x - c_i|^2 / 2 with noise, c_i = i."""
    dimension = {dimension}
    dtype = {dtype}
    def __init__(self, seed):
        self.seed = seed
    def start(self):
        return {start}
    def local(self, client):
        return Local(client, stream(self.seed, Purpose.SAMPLES, client))
    def evaluate(self, models, *, with_loss=True):
        return {metrics}

class Local:
    def __init__(self, client, generator):
        self.client, self.generator = client, generator
    def descend(self, model, step_size{steps}):
        noise = {noise}
        {descend}
        return model - step_size * (model - self.client + noise)
    def gradient(self, model):
        {gradient}
    def skip(self, rounds):
        {skip}

def make(seed, {parameters}):
    return {problem}
'''
PROBLEM_DEFAULTS = {
    "dimension": "2",
    "dtype": "np.dtype(np.float64)",
    "start": "np.array([3.0, -1.0])",
    "metrics": "Metrics.of([0.5 * float(model @ model) for model in models])",
    "noise": "0.1 * self.generator.standard_normal(2)",
    "steps": "",
    "descend": "pass",
    "gradient": "return model - self.client + 0.1 * self.generator.standard_normal(2)",
    "skip": "self.generator.standard_normal((rounds, 2))",
    "parameters": "width: int = 1",
    "problem": "Bowl(seed)",
}
DATA = """
import numpy as np
from areabench.extend import Dataset

def make({parameters}):
    features = {features}
    labels = {labels}
    return {data}
"""
DATA_DEFAULTS = {
    "parameters": "cache",
    "features": "np.arange(24, dtype=np.uint8).reshape(12, 2)",
    "labels": "np.arange(12) % 3",
    "data": 'Dataset("mine", features, labels, features, labels, 3, {scale})',
    "scale": "0.1",
}
SPLIT = "import numpy as np\ndef make(labels, clients, generator):\n    return {parts}\n"
SPLIT_DEFAULTS = {"parts": "np.array_split(generator.permutation(len(labels)), clients)"}
DELAYS = "import random\ndef make(rate, generator):\n    {before}\n    while True:\n        yield {delay}\n"
DELAYS_DEFAULTS = {"before": "pass", "delay": "1 / rate + generator.standard_exponential() / rate"}
SOURCES = {
    "method": (METHOD, METHOD_DEFAULTS),
    "problem": (PROBLEM, PROBLEM_DEFAULTS),
    "data": (DATA, DATA_DEFAULTS),
    "split": (SPLIT, SPLIT_DEFAULTS),
    "delays": (DELAYS, DELAYS_DEFAULTS),
}
SECTIONS = {
    "clients": "count = 2",
    "method": 'name = "area"\nstep_size = 0.05',
    "problem": 'name = "quadratic"\ndimension = 2',
    "stop": "iterations = 20",
}
ON_DATA = {
    "problem": 'name = "logistic"\nbatch_size = 2',
    "data": 'name = "synthetic"\ntrain_samples = 12\ntest_samples = 4\nfeatures = 2\nclasses = 3',
    "split": 'name = "iid"',
}


def source(section: str, **changes: str) -> str:
    """The module of a part, with something about it changed."""
    text, defaults = SOURCES[section]
    values = {**defaults, **changes}
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text.replace("{scale}", values.get("scale", ""))


def experiment(section: str, settings: str = "{}") -> str:
    """An experiment whose section names `mine:make`."""
    sections = {**SECTIONS, **(ON_DATA if section in ("data", "split") else {})}
    step_size = "step_size = 0.05\n" if section == "method" else ""
    sections[section] = f'name = "mine:make"\n{step_size}settings = {settings}'
    return 'name = "tiny"\n' + "\n".join(f"[{name}]\n{text}" for name, text in sections.items()) + "\n"


def write(folder: Path, section: str, settings: str = "{}", **changes: str) -> Path:
    """Write both files; the experiment's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(source(section, **changes), encoding="utf-8")
    path = folder / "tiny.toml"
    path.write_text(experiment(section, settings), encoding="utf-8")
    return path
