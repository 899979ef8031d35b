"""The page docs/experiment-file.md, made from the records of `experiment`: make docs-reference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from areabench.experiment.fields import Limits, Settings
from areabench.experiment.parse import name_of, options_of
from areabench.experiment.records import Experiment

_INTRODUCTION = """\
# The experiment file

One TOML file describes one experiment. A section that comes in several variants names the one it means with `name`;
the keys of the other variants are refused in it. Unknown keys, wrong types and values out of range are refused, in one
line that says what is allowed. `areabench check FILE` prints an experiment with all defaults filled in, and
`--set section.key=value` overrides one key without touching the file. To change to a variant with other keys, replace
the whole section: `--set "split={name = 'iid'}"`. `extends`, `[sweep]` and `[[sweep.grid]]` make a sweep of it:
[sweeps](sweeps.md).

```toml
name = "first"
seed = 1

[clients]
count = 8

[method]
name = "area"
step_size = 10.0

[stop]
horizon_s = 15.0

[problem]
name = "logistic"
```

A whole number stands for a number (`10` for `10.0`). Numbers must be finite. Whole numbers must fit 64 bits.
Where a default reads "none", leaving the key out has the meaning that its row tells.

This page is generated: `make docs-reference`.
"""

_COMBINATIONS = """\
## What must fit together

- `[stop]` needs `horizon_s` or `iterations`: a target alone may never be reached.
- A target needs snapshots: `record.snapshots` must not be `"none"`. `stop.target_accuracy` needs a problem with data.
- A horizon and a grid may not make more than 1,000,000 snapshots.
- `rates.values` lists one rate a client, and `method.clients_per_round` is at most `clients.count`.
- `s-fedavg` goes with `aggregation.name = "updates"` only, which it ignores: its round ends when its clients have
  answered.
- `fedbuff` needs `server_step_size` where there is a schedule other than `constant`.
- `quadratic`, `robust` and `median` take neither `[data]` nor `[split]`.
- `quadratic`: `curvature_max` is not below `curvature_min`; a `zeta` above 0 needs two clients and a `heterogeneity`
  above 0.
- `robust`: all clients together have at least `dimension` samples.
- `logistic`: `minimiser` needs a `regularisation` above 0.
- A problem of your own has data only where there is a section `[data]`; `[split]` is then `dirichlet` if left out.
- The other problems take `mnist` and `dirichlet` with their defaults where `[data]` or `[split]` is left out.
"""


def experiment_reference() -> str:
    """Every key with type, unit, range and default, as Markdown."""
    hints = get_type_hints(Experiment)
    items = {item.name: item for item in fields(Experiment)}
    sections = [name for name in items if is_dataclass(options_of(hints[name])[0])]
    top = _table([items[name] for name in items if name not in sections], hints)
    parts = [_INTRODUCTION, f"## Top of the file\n\n{top}"]
    parts += [_section(name, options_of(hints[name]), items[name]) for name in sections]
    return "\n".join([*parts, _COMBINATIONS])


def _section(name: str, records: Sequence[Any], item: Field[Any]) -> str:
    """One section with all its variants."""
    if len(records) == 1:
        return f"## [{name}]\n\n{_optional(item)}{_record(records[0])}"
    variants = [f'### [{name}] name = "{name_of(record)}"\n\n{_record(record)}' for record in records]
    return "\n".join([f"## [{name}]\n\n{_optional(item)}", *variants]).replace("\n\n\n", "\n\n")


def _optional(item: Field[Any]) -> str:
    """Whether the section may be left out, and what then holds."""
    if item.default is MISSING:
        return "Required.\n\n"
    if item.default is None:
        return "May be left out, see [what must fit together](#what-must-fit-together).\n\n"
    name = getattr(item.default, "name", None)
    return f"May be left out: then it is `{name}` with its defaults.\n\n" if name else "May be left out.\n\n"


def _record(record: Any) -> str:
    keys = [item for item in fields(record) if "limits" in item.metadata]
    table = f"\n{_table(keys, get_type_hints(record))}" if keys else "\nIt has no further keys.\n"
    return f"{record.__doc__}\n{table}"


def _table(items: Sequence[Field[Any]], hints: dict[str, Any]) -> str:
    columns = ("key", "type", "unit", "allowed", "default", "meaning")
    return reference_table(columns, [_row(item, hints[item.name]) for item in items])


def reference_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [columns, ["---" for _ in columns], *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _row(item: Field[Any], kind: Any) -> list[str]:
    limits: Limits = item.metadata["limits"]
    return [f"`{item.name}`", _type(kind), limits.unit, _allowed(kind, limits), _default(item), limits.doc]


def _type(kind: Any) -> str:
    words = {bool: "true or false", int: "whole number", float: "number", str: "string"}
    (option,) = options_of(kind)
    if get_origin(option) is Literal:
        return "string"
    if option is Settings:
        return "table"
    if get_origin(option) is tuple:
        return {str: "list of strings", int: "list of whole numbers"}.get(get_args(option)[0], "list of numbers")
    return words[option]


def _allowed(kind: Any, limits: Limits) -> str:
    (option,) = options_of(kind)
    if get_origin(option) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(option))
    bounds = limits.describe()
    return f"each {bounds}" if bounds and get_origin(option) is tuple else bounds


def _default(item: Field[Any]) -> str:
    if item.default is MISSING:
        return "required"
    if item.default is None:
        return "none"
    if isinstance(item.default, Settings):
        return "`{}`"
    if isinstance(item.default, bool):
        return f"`{str(item.default).lower()}`"
    if isinstance(item.default, tuple):
        return f"`{list(item.default)}`"
    return f'`"{item.default}"`' if isinstance(item.default, str) else f"`{item.default!r}`"


if __name__ == "__main__":
    sys.stdout.write(experiment_reference())
