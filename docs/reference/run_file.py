"""The tables of columns in docs/run-file.md, made from the schema of run files: make docs-reference."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from areabench.arrays import Columns
from areabench.engine.diagnosis import DIAGNOSIS_CLIENT_COLUMNS, QUANTILE_COLUMNS
from areabench.engine.events import CLIENT_COLUMNS, EVENT_COLUMNS, Provenance
from areabench.runfile.schema import (
    ATTRIBUTES,
    CHECKSUM_COLUMNS,
    DATASETS,
    DIAGNOSIS_COLUMNS,
    METRIC_COLUMNS,
    SNAPSHOT_COLUMNS,
    STATUS_COLUMNS,
)

PAGE = Path(__file__).parents[1] / "run-file.md"
_TABLE = re.compile(r"(<!-- table (?P<name>[\w/]+): make docs-reference -->\n\n)(?:\|.*\n)*")


def run_file_page() -> str:
    """The page, each table behind a mark written again."""
    tables = _tables()
    return _TABLE.sub(lambda found: found[1] + tables[found["name"]], PAGE.read_text(encoding="utf-8"))


def _tables() -> dict[str, str]:
    hints = get_type_hints(Provenance, include_extras=True)
    provenance = {}
    for item in fields(Provenance):
        hint = hints[item.name]
        provenance[item.name] = ("i8" if hint.__origin__ is int else "text", hint.__metadata__[0])
    columns = {
        "status": STATUS_COLUMNS,
        "clients": CLIENT_COLUMNS,
        "events": EVENT_COLUMNS,
        "snapshots/index": SNAPSHOT_COLUMNS,
        "metrics": METRIC_COLUMNS,
        "diagnosis/summary": DIAGNOSIS_COLUMNS,
        "diagnosis/clients": DIAGNOSIS_CLIENT_COLUMNS,
        "diagnosis/quantiles": QUANTILE_COLUMNS,
        "checksums": CHECKSUM_COLUMNS,
    }
    tables = {name: _table("column", table) for name, table in columns.items()}
    tables["attributes"] = _table("attribute", ATTRIBUTES)
    tables["provenance"] = _table("attribute", provenance)
    tables["datasets"] = _datasets(columns)
    return tables


def _table(heading: str, columns: Columns) -> str:
    rows = [f"| `{name}` | {kind.lstrip('<')} | {meaning} |" for name, (kind, meaning) in columns.items()]
    return "\n".join([f"| {heading} | type | meaning |", "|---|---|---|", *rows, ""])


def _datasets(columns: dict[str, Columns]) -> str:
    rows = []
    for name, dataset in DATASETS.items():
        kind = "columns" if name in columns else "i8"
        rows.append(f"| `/{name}` | {kind if dataset.row is not None else 'vector'} | {dataset.meaning} |")
    return "\n".join(["| dataset | row | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(run_file_page(), encoding="utf-8")
