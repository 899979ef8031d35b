"""The campaign's log: one line of JSON a run, written when the run has been looked at, so that a campaign goes on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tests.campaign.findings import Finding


def read_log(path: Path, seed: int) -> dict[int, Finding]:
    """What is known of the campaign with this seed, by number; the last word on a run counts."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {row["number"]: Finding(**row) for row in rows if row["seed"] == seed}


def append_log(path: Path, finding: Finding) -> None:
    """Add a run, on a line of its own even where the last one was cut off."""
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if cut_off else "") + json.dumps(asdict(finding)) + "\n")
