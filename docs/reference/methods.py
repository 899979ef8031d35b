"""The page docs/method-list.md, made from the catalogue of methods: make docs-reference."""

from __future__ import annotations

import sys

from areabench.results.methods import listed_methods

_INTRODUCTION = """\
# All methods

What `areabench methods` prints; `areabench methods NAME` lists the keys of one. *Chosen by* says who decides which
client works next. *Under uneven rates* is the limit on problems without noise with small steps: exact, or what the
method is biased towards, [as measured](../benchmarks/results/studies/BIAS_METHODS.md). *Server* is the memory of the
rule in vectors of the model's length d, for n clients; the models that clients still work on come on top. This page
is generated: `make docs-reference`.

| `method.name` | what it is | chosen by | under uneven rates | server | paper |
|---|---|---|---|---|---|
"""


def method_list() -> str:
    """All methods as a table in Markdown."""
    rows = [
        f"| `{each.name}` | {each.summary} | {each.chooses} | {each.limit} | {each.memory} | {each.paper} |"
        for each in listed_methods()
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(method_list())
