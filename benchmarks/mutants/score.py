"""The score: what share of the mutants that change something the tests notice, with its interval, and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.mutants.reach import MOST_S
from benchmarks.mutants.trial import Verdict

Z = 1.959964  # two-sided 95 %


@dataclass(frozen=True)
class Score:
    """Counts of one room, or of all."""

    name: str
    mutants: int  # that there are
    drawn: int
    equivalent: int  # of those drawn
    noticed: int

    @property
    def counted(self) -> int:
        """Mutants that a test can notice."""
        return self.drawn - self.equivalent

    @property
    def share(self) -> float:
        """The score in percent; NaN where there is nothing to notice."""
        return 100 * self.noticed / self.counted if self.counted else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share, in percent."""
        return wilson(self.noticed, self.counted)

    def row(self) -> str:
        """A row of the table."""
        low, high = self.interval
        numbers = (self.mutants, self.drawn, self.equivalent, self.noticed, self.counted - self.noticed)
        return f"| {self.name} | {' | '.join(f'{n:,}' for n in numbers)} | {self.share:.1f} | {low:.1f} to {high:.1f} |"


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a binomial share, in percent."""
    if not count:
        return 0.0, 100.0
    share, square = hits / count, Z * Z / count
    middle, half = share + square / 2, Z * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return 100 * (middle - half) / (1 + square), 100 * (middle + half) / (1 + square)


HEAD = """# Mutation testing

`{command}` changed the source in small ways, one at a time, and ran the
tests that reach the changed line. A mutant is *noticed* if one of them fails or does not end. The same number is drawn
in each room, by seed {seed}.

{first}

The last row pools the rooms. *Equivalent* mutants change nothing that a test could see; each has its reason in
[equivalent.toml](../mutants/equivalent.toml). They do not count. The interval is Wilson's, for the draw alone.
{second}
Changed are comparisons, arithmetic, numbers, `and`, `or`, `not`, conditions and returned values, and statements are
removed: calls, assignments to attributes and entries, `raise`, `continue`, `break`. Words are not changed. The tests
are those of the four rooms without the slow ones, the fastest first, {most_s:g} s of them at most. Not drawn are
{apart}:
only ranks under `mpirun` reach them (`tests/inrank`, `tests/launched`). What only a process reaches that a test starts
counts as survived.

## Survivors

{survivors}
"""
SEEN = """
The mutants below were drawn by {seen} before, and what survived then got a test or was found equivalent. So their
score says that this was done, not how good the tests are; the table above leaves these mutants out.

{table}
"""
LEFT_OUT = """
Left out are the mutants that were drawn by {seen} before: what survived of them got a test or was found equivalent.
"""
COLUMNS = """| room | mutants | drawn | equivalent | noticed | survived | score (%) | 95 % interval |
|---|---|---|---|---|---|---|---|
"""


def page(tables: Sequence[Sequence[Score]], survivors: Sequence[Verdict], words: Mapping[str, str]) -> str:
    """The page in Markdown; of two tables the second is of mutants that were seen before."""
    first, *others = (COLUMNS + "\n".join(score.row() for score in table) for table in tables)
    left_out = LEFT_OUT.format(seen=words["seen"]) if words["seen"] else ""
    second = "".join(SEEN.format(table=table, seen=words["seen"]) for table in others) or left_out
    lines = "\n".join(f"- `{verdict.key}` ({verdict.state})" for verdict in survivors) or "None."
    return HEAD.format(first=first, second=second, survivors=lines, most_s=MOST_S, **words)
