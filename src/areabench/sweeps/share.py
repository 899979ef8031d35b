"""Shares of a sweep: its runs dealt out to several processes, which write into one folder at the same time."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from areabench.errors import UserError
from areabench.sweeps.plan import SweepPlan


@dataclass(frozen=True)
class Share:
    """Every `of`-th run of a sweep, beginning with run `number`, from 1 on in the order of the plan; 1 of 1 is all."""

    number: int = 1
    of: int = 1

    @property
    def whole(self) -> bool:
        """Whether it is the whole sweep."""
        return self.of == 1

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.number}/{self.of}"

    @property
    def suffix(self) -> str:
        """What the names of its own files in the folder end in; nothing for the whole sweep."""
        return "" if self.whole else f"-{self.number}-of-{self.of}"

    def taken_from(self, plan: SweepPlan) -> SweepPlan:
        """The plan with the runs of this share only; its text stays that of the whole sweep."""
        return replace(plan, members=plan.members[self.number - 1 :: self.of])


def read_share(text: str) -> Share:
    """A share as it is typed: K/N."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    number, of = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= of:
        raise UserError(f"--share {text}: is no K/N with 1 <= K <= N; the shares of three are 1/3, 2/3 and 3/3")
    return Share(number, of)
