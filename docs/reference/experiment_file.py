"""The page docs/experiment-file.md, made from the records of `experiment`: make docs-reference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from areabench.experiment.experiment import Experiment
from areabench.methods.own import OwnMethod
from areabench.settings.keys import Limits, Settings
from areabench.settings.limits import LARGEST, LARGEST_SIZE
from areabench.settings.parse import options_of, records_of
from areabench.settings.parts import name_of

_INTRODUCTION = """\
# The experiment file

One TOML file describes one experiment. Where a section has variants, its `name` chooses one; a section without `name`
is of the default variant, if there is one. Keys of other variants, unknown keys, wrong types and values out of range
are refused in one line that says what is allowed. `areabench check FILE` prints an experiment with all defaults.
`--set section.key=value` overrides one key; `--set split.name=iid` changes the variant and drops the keys that only the
one before had. `extends`, `[sweep]` and `[[sweep.grid]]` make a [sweep](sweeps.md).

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

Brackets hold type, unit, allowed values and default. A key without a type takes a number, where `10` stands for `10.0`.
Numbers are finite, integers fit 64 bits. In `[problem]`, `[data]` and `[split]` numbers are at most 1e15, and
`dimension`, `features` and counts of samples at most 1e12. This page is generated: `make docs-reference`.
"""

_OWN = """\
## Parts of your own

{sections} also take the import path of
[a function of your own](extending.md) as `name`: `"module:function"`. It is executed: run only experiment files that
you trust. Only `[method]` has `step_size`.

"""

_COMBINATIONS = """\
## What must fit together

- `[stop]` needs `horizon_s` or `iterations`. A target needs snapshots (`record.snapshots` not `"none"`), and
  `target_accuracy` a problem with data.
- A horizon and a grid make at most 1,000,000 snapshots.
- `rates.values` lists one rate per client, and `method.clients_per_round` is at most `clients.count`.
- `s-fedavg` needs `aggregation.name = "updates"` and ignores it.
- `fedbuff` needs `server_step_size` with any schedule but `constant`.
- `quadratic`, `robust` and `median` take neither `[data]` nor `[split]`. A problem of your own has data only with a
  section `[data]`; `[split]` is then `dirichlet` by default. The others default to `mnist` and `dirichlet`.
- Every client gets at least one training sample, or `split.minimum`.
- `quadratic`: `curvature_max` is at least `curvature_min`; a positive `zeta` needs two clients and a positive
  `heterogeneity`.
- `robust`: all clients together have at least `dimension` samples.
- `logistic`: `minimiser` needs a positive `regularisation`.
- A round draws at most 100,000,000 samples: `batch_size` times `clients.local_steps`.
- `faults.lost` names different clients, not all, and `lost_at_s` has as many times.
"""


def experiment_reference() -> str:
    """Every key with type, unit, range and default, as Markdown."""
    hints = get_type_hints(Experiment)
    items = {item.name: item for item in fields(Experiment)}
    records = {name: records_of(item, hints[name]) for name, item in items.items()}
    sections = [name for name in items if records[name]]
    top = _entries([items[name] for name in items if name not in sections], hints)
    parts = [_INTRODUCTION, f"## Top of the file\n\n{top}"]
    parts += [_section(name, _package_parts(records[name]), items[name]) for name in sections]
    own = [name for name in sections if len(_package_parts(records[name])) < len(records[name])]
    return "\n".join([*parts, _own_section(own), _COMBINATIONS])


def _package_parts(records: Sequence[Any]) -> list[Any]:
    """The records of a section without that of the user's own function, which has a section of its own."""
    return [record for record in records if not getattr(record, "own", False)]


def _own_section(names: Sequence[str]) -> str:
    first, last = ", ".join(f"`[{name}]`" for name in names[:-1]), f"`[{names[-1]}]`"
    return _OWN.format(sections=f"{first} and {last}") + _keys(OwnMethod)


def _section(name: str, records: Sequence[Any], item: Field[Any]) -> str:
    """One section with all its variants."""
    if len(records) == 1:
        return f"## [{name}]\n\n{_optional(item)}{_record(records[0])}"
    variants = [f"### {name_of(record)}\n\n{_record(record)}" for record in records]
    return "\n".join([f"## [{name}]\n\n{_optional(item)}", *variants]).replace("\n\n\n", "\n\n")


def _optional(item: Field[Any]) -> str:
    """Whether the section may be left out, and what then holds."""
    if item.default is MISSING:
        return "Required.\n\n"
    if item.default is None:
        return "Optional, see [what must fit together](#what-must-fit-together).\n\n"
    name = getattr(item.default, "name", None)
    return f"Optional, default `{name}`.\n\n" if name else "Optional.\n\n"


def _record(record: Any) -> str:
    keys = _keys(record)
    return f"{record.__doc__}\n\n{keys}" if keys else f"{record.__doc__}\n"


def _keys(record: Any) -> str:
    return _entries([item for item in fields(record) if "limits" in item.metadata], get_type_hints(record))


def _entries(items: Sequence[Field[Any]], hints: dict[str, Any]) -> str:
    """A list with one entry per key."""
    return "".join(f"{_entry(item, hints[item.name])}\n" for item in items)


def _entry(item: Field[Any], kind: Any) -> str:
    limits: Limits = item.metadata["limits"]
    facts = [_type(kind), limits.unit, _allowed(kind, limits), _default(item)]
    return f"- `{item.name}` ({', '.join(fact for fact in facts if fact)}): {limits.doc}"


def _type(kind: Any) -> str:
    words = {bool: "boolean", int: "integer", float: "number", str: "string"}
    (option,) = options_of(kind)
    if option is float or get_origin(option) is Literal:
        return ""  # the introduction, or the allowed values, say it
    if option is Settings:
        return "table"
    if get_origin(option) is tuple:
        return f"list of {words[get_args(option)[0]]}s"
    return words[option]


def _allowed(kind: Any, limits: Limits) -> str:
    (option,) = options_of(kind)
    if get_origin(option) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(option))
    largest = limits.maximum in (LARGEST, LARGEST_SIZE)  # the introduction names these
    bounds = (replace(limits, maximum=None) if largest else limits).describe()
    return f"each {bounds}" if bounds and get_origin(option) is tuple else bounds


def _default(item: Field[Any]) -> str:
    if item.default is MISSING:
        return "required"
    if item.default is None:
        return "optional"
    if isinstance(item.default, Settings):
        return "default `{}`"
    if isinstance(item.default, bool):
        return f"default `{str(item.default).lower()}`"
    if isinstance(item.default, tuple):
        return f"default `{list(item.default)}`"
    return f'default `"{item.default}"`' if isinstance(item.default, str) else f"default `{item.default!r}`"


if __name__ == "__main__":
    sys.stdout.write(experiment_reference())
