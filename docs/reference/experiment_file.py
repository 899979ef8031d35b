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

One TOML file describes one experiment. A section with several variants names its variant with `name`; keys of other
variants are refused. Unknown keys, wrong types and values out of range are refused in one line that says what is
allowed. `areabench check FILE` prints an experiment with all defaults. `--set section.key=value` overrides one key;
replace the whole section to change to a variant with other keys: `--set "split={name = 'iid'}"`. `extends`, `[sweep]`
and `[[sweep.grid]]` make a [sweep](sweeps.md).

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

The brackets behind a key hold its type, unit, allowed values and default. A whole number stands for a number (`10` for
`10.0`). Numbers must be finite; whole numbers must fit 64 bits. Where the default is "none", the text says what leaving
the key out means.

This page is generated: `make docs-reference`.
"""

_COMBINATIONS = """\
## What must fit together

- `[stop]` needs `horizon_s` or `iterations`: a target alone may never be reached.
- A target needs snapshots: `record.snapshots` must not be `"none"`. `stop.target_accuracy` needs a problem with data.
- A horizon and a grid may not make more than 1,000,000 snapshots.
- `rates.values` lists one rate per client, and `method.clients_per_round` is at most `clients.count`.
- `s-fedavg` needs `aggregation.name = "updates"` and ignores it: its round ends when its clients have answered.
- `fedbuff` needs `server_step_size` with any schedule but `constant`.
- `quadratic`, `robust` and `median` take neither `[data]` nor `[split]`.
- `quadratic`: `curvature_max` is not below `curvature_min`; a `zeta` above 0 needs two clients and a `heterogeneity`
  above 0.
- `robust`: all clients together have at least `dimension` samples.
- `logistic`: `minimiser` needs a `regularisation` above 0.
- A problem of your own has data only with a section `[data]`; `[split]` is then `dirichlet` by default.
- The other problems use `mnist` and `dirichlet` with their defaults where `[data]` or `[split]` is left out.
"""


def experiment_reference() -> str:
    """Every key with type, unit, range and default, as Markdown."""
    hints = get_type_hints(Experiment)
    items = {item.name: item for item in fields(Experiment)}
    sections = [name for name in items if is_dataclass(options_of(hints[name])[0])]
    top = _entries([items[name] for name in items if name not in sections], hints)
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
        return "Optional, see [what must fit together](#what-must-fit-together).\n\n"
    name = getattr(item.default, "name", None)
    return f"Optional; the default is `{name}` with its defaults.\n\n" if name else "Optional.\n\n"


def _record(record: Any) -> str:
    keys = [item for item in fields(record) if "limits" in item.metadata]
    entries = f"\n{_entries(keys, get_type_hints(record))}" if keys else "\nNo further keys.\n"
    return f"{record.__doc__}\n{entries}"


def _entries(items: Sequence[Field[Any]], hints: dict[str, Any]) -> str:
    """A list with one entry per key."""
    return "".join(f"{_entry(item, hints[item.name])}\n" for item in items)


def _entry(item: Field[Any], kind: Any) -> str:
    limits: Limits = item.metadata["limits"]
    default = _default(item)
    facts = [
        _type(kind),
        limits.unit,
        _allowed(kind, limits),
        default if item.default is MISSING else f"default {default}",
    ]
    return f"- `{item.name}` ({', '.join(fact for fact in facts if fact)}): {limits.doc}"


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
