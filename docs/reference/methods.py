"""The page docs/method-list.md and the tables at the head of docs/methods-*.md, made from the methods' files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from areabench.methods import METHODS
from areabench.results.methods import listed_methods

DOCS = Path(__file__).parents[1]

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


_HEAD = re.compile(r"<!-- head: make docs-reference -->\n.*?\n\n", re.DOTALL)


def method_list() -> str:
    """All methods as a table in Markdown."""
    rows = [
        f"| [`{each.name}`]({METHODS[each.name].page}) | {each.summary} | {each.chooses} | {each.limit} | "
        f"{each.memory} | {each.paper} |"
        for each in listed_methods()
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n"


def pages_with_heads() -> dict[Path, str]:
    """The pages of the methods, each with the table of its methods."""
    pages = {path: path.read_text(encoding="utf-8") for path in DOCS.glob("methods*.md")}
    return {path: _HEAD.sub(_head(path.name), text) for path, text in pages.items()}


def _head(page: str) -> str:
    rows = [
        f"| [{record.label}]({record.page.removeprefix(page)}) | `{name}` | {record.chooses} | {record.memory} | "
        f"{record.limit} |"
        for name, record in METHODS.items()
        if record.page.partition("#")[0] == page
    ]
    titles = "| method | `method.name` | chosen by | server | under uneven rates |\n|---|---|---|---|---|\n"
    return "<!-- head: make docs-reference -->\n" + titles + "\n".join(rows) + "\n\n"


if __name__ == "__main__":
    for path, text in pages_with_heads().items():
        path.write_text(text, encoding="utf-8")
    sys.stdout.write(method_list())
