"""What was found out about one run of the campaign, and the log of all runs: one JSON line per run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Finding:
    """One run, as it is logged; grows while the run is looked at."""

    seed: int
    number: int
    kind: str  # key of the kind
    method: str
    problem: str
    clients: int
    commit: str = ""
    skipped: str = ""  # why it could not be run
    hit: bool = False  # the fault came while the run was running
    state: str = ""
    code: int | None = None
    none_left: bool = True  # no process was left after any command
    no_hang: bool = True
    readable: bool | None = None  # None: there was nothing to look at
    replayed: bool | None = None
    resumed: bool | None = None
    recovered: bool | None = None
    ending_s: float | None = None  # from the fault until no process was left, where the fault ends the run
    refused: int = 0
    lost: int = 0
    wall_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.failures

    def fail(self, what: str) -> None:
        """Something was not as expected."""
        self.failures.append(what)

    def require(self, holds: bool, what: str) -> bool:
        """Note a failure unless something holds; returns whether it does."""
        if not holds:
            self.fail(what)
        return holds

    def line(self) -> str:
        """The run in one line."""
        if self.skipped:
            return f"{self.number:4d}  {self.kind:<44} skipped: {self.skipped}"
        how = "FAILED" if self.failures else "ok" if self.hit else "missed"
        seen = f"{self.state}, exit {self.code}" + (", resumed" if self.resumed else "")
        return f"{self.number:4d}  {self.kind:<44} {self.method:<10} {how:<7} {seen} ({self.wall_s:.1f} s)"


def read_log(path: Path, seed: int) -> dict[int, Finding]:
    """What is known of the campaign with this seed, by number; the last line of a run counts."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {row["number"]: Finding(**row) for row in rows if row["seed"] == seed}


def append_log(path: Path, finding: Finding) -> None:
    """Add a run, on a line of its own even where the last one was cut off."""
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if cut_off else "") + json.dumps(asdict(finding)) + "\n")
