"""One table of the paper three times: in real time, simulated and published. `make table-mpi` writes the page."""

from __future__ import annotations

import math
import shlex
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paper.origin import read_makers
from paper.page_tables import entry_table, paragraph
from paper.published import BesidePaper, beside_paper, is_in_range, spread_word

import areabench
from areabench.errors import UserError
from areabench.experiment.labels import describe_setting, method_label
from areabench.results.cells import Cell
from areabench.results.comparison import RunComparison, compare_runs
from areabench.results.grouping import comparisons_of
from areabench.results.retention import named_rule
from areabench.results.statistics import Spread
from areabench.sweeps.read import Sweep
from areabench.views.tables.forms import TableCell

TOLERANCE_PERCENT = 2.0
TARGET = 80.0  # test accuracy in percent
_NONE = "–"

# ---------------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Twins:
    """A cell in real time, the same cell simulated, and the comparison of their trials."""

    real: Cell
    simulated: Cell
    trials: tuple[RunComparison, ...]

    @property
    def published(self) -> BesidePaper | None:
        """The cell in real time beside the paper's; None where the paper has none."""
        return beside_paper(self.real)

    @property
    def clocks_agree(self) -> bool:
        """Whether accuracy and loss in real time are near the simulated ones, and no trial diverged."""
        complete = self.real.is_eligible and self.simulated.is_eligible
        pairs = ((self.real.accuracy, self.simulated.accuracy), (self.real.loss, self.simulated.loss))
        return complete and all(is_near(real, simulated) for real, simulated in pairs)

    @property
    def difference_percent(self) -> float:
        """By how much the mean number of updates in real time differs from the simulated one."""
        real = self.mean(lambda trial: trial.updates.second)
        simulated = self.mean(lambda trial: trial.updates.first)
        return 100 * (real / simulated - 1)

    def mean(self, measure: Callable[[RunComparison], float]) -> float:
        """The mean of a measure over the trials; NaN where one has none."""
        return statistics.fmean(measure(trial) for trial in self.trials)


def is_near(real: Spread | None, simulated: Spread | None) -> bool:
    """Whether a mean lies in the simulated range or within the tolerance of the simulated mean."""
    if real is None or simulated is None:
        return real is simulated  # a problem without accuracy has none on either clock
    return is_in_range(real.mean, simulated) or abs(real.mean / simulated.mean - 1) <= TOLERANCE_PERCENT / 100


def read_twins(real: Sweep, simulated: Sweep) -> list[Twins]:
    """The cells of two sweeps of one file, in its order, uniform rates first."""
    if simulated.transport != "simulator":
        raise UserError(
            f"{simulated.folder}: is of the transport {simulated.transport}; give the folder in real time first"
        )
    cells = [_cells(sweep) for sweep in (real, simulated)]
    if list(cells[0]) != list(cells[1]):
        raise UserError(f"{real.folder} and {simulated.folder}: are not of one sweep file; run it on both transports")
    return [Twins(one, cells[1][key], _compare(one, cells[1][key])) for key, one in cells[0].items()]


def _cells(sweep: Sweep) -> dict[tuple[object, ...], Cell]:
    """By rates and method; each sweep must be complete, and of one setting."""
    if sweep.missing:
        reason = f" ({sweep.failures[0].reason})" if sweep.failures else ""
        raise UserError(f"{sweep.folder}: {len(sweep.missing)} of its runs missing{reason}; run its sweep again")
    (table,) = comparisons_of(sweep, named_rule("all"), TARGET)
    cells = [cell for entry in table.entries for cell in entry.cells]
    return {(cell.experiment.rates, cell.experiment.method): cell for cell in cells}


def _compare(real: Cell, simulated: Cell) -> tuple[RunComparison, ...]:
    """Trial by trial; those of a cell are in the order of their seeds."""
    found = []
    for one, other in zip(real.results, simulated.results, strict=True):
        with areabench.open_run(other.path) as reference, areabench.open_run(one.path) as run:
            found.append(compare_runs(reference, run))
    return tuple(found)


# ---------------------------------------------------------------------------------------------------- tables


def quality_table(twins: list[Twins]) -> str:
    """Accuracy and loss; in real time bold where the mean is in the published range."""
    columns = ["method, α, rates", "accuracy %: real time", "simulated", "paper", "loss: real time", "simulated"]
    columns += ["paper", "agrees with the simulator", "with the paper"]
    return entry_table(columns, [_quality_row(one) for one in twins])


def _quality_row(one: Twins) -> list[TableCell]:
    real = one.real
    simulated = one.simulated
    beside = one.published
    paper = beside.published if beside else None
    return [
        TableCell(cell_word(real)),
        _spread(real.accuracy, is_bold=beside is not None and beside.accuracy_in_range),
        _spread(simulated.accuracy),
        _spread(paper.accuracy if paper else None),
        _spread(real.loss, is_bold=beside is not None and beside.loss_in_range),
        _spread(simulated.loss),
        _spread(paper.loss if paper else None),
        TableCell("yes" if one.clocks_agree else "no"),
        TableCell(_NONE if beside is None else "yes" if beside.agrees else "no"),
    ]


def time_table(twins: list[Twins]) -> str:
    """Time to the target, updates, and how far apart the arrivals are."""
    columns = ["method, α, rates", f"time to {TARGET:g} %: real time", "simulated", "paper", "updates: real time"]
    columns += ["simulated", "difference", "arrivals late by (p50)", "pairs in the other order"]
    return entry_table(columns, [[TableCell(word) for word in _time_row(one)] for one in twins])


def _time_row(one: Twins) -> list[str]:
    horizon_s = one.real.experiment.stop.horizon_s or math.nan
    beside = one.published
    real = one.mean(lambda trial: trial.updates.second)
    simulated = one.mean(lambda trial: trial.updates.first)
    late_s = one.mean(lambda trial: trial.shift.seconds.p50 if trial.shift else math.nan)
    distance = one.mean(lambda trial: trial.order.distance if trial.order else math.nan)
    return [
        cell_word(one.real),
        _seconds(one.real.reach.rho, horizon_s),
        _seconds(one.simulated.reach.rho, horizon_s),
        _seconds(beside.published.rho, horizon_s) if beside else _NONE,
        f"{real:,.0f}",
        f"{simulated:,.0f}",
        f"{one.difference_percent:+.2f} %",
        _number(1e3 * late_s, "{:.0f} ms"),
        _number(100 * distance, "{:.2f} %"),
    ]


def cell_word(cell: Cell) -> str:
    """Method, step size and rates."""
    label = method_label(cell.experiment.method.name)
    return f"{label}, {cell.step_size:g}, {cell.experiment.rates.describe().partition(' ')[0]}"


def _spread(spread: Spread | None, *, is_bold: bool = False) -> TableCell:
    return TableCell(_NONE) if spread is None else TableCell(spread_word(spread), is_bold=is_bold)


def _seconds(rho: float, horizon_s: float) -> str:
    if math.isinf(rho):
        return "not reached"
    return _number(rho * horizon_s, "{:.1f} s")


def _number(value: float, form: str) -> str:
    return _NONE if math.isnan(value) else form.format(value)


# ---------------------------------------------------------------------------------------------------- page


PAGE = """\
# One table of the paper in real time

{setting}
{counts}
## Accuracy and loss

{legend}
{quality}
## Time and updates

{times_legend}
{times}
## Where the numbers come from

{origin}"""


def counts_words(twins: list[Twins]) -> str:
    """How many cells agree, in one paragraph."""
    beside = [one.published for one in twins if one.published is not None]
    found = [beside_paper(one.simulated) for one in twins]
    simulated = [one for one in found if one is not None]
    clocks = sum(one.clocks_agree for one in twins)
    words = f"**{clocks} of {len(twins)} cells in real time agree with the simulated ones"
    if beside:
        words += f", {sum(one.agrees for one in beside)} of {len(beside)} with the published ones"
        words += f"** (of the simulated ones {sum(one.agrees for one in simulated)})"
    else:
        words += "**"
    differences = [one.difference_percent for one in twins]
    span = f"{min(differences):+.2f} to {max(differences):+.2f} %"
    return paragraph(f"{words}. The updates differ by {span} from the simulated ones.")


def origin_words(paths: list[Path], command: str) -> str:
    """Runs, days, versions and machine; the first run is one in real time."""
    makers = read_makers(paths)
    with areabench.open_run(paths[0]) as run:
        first = run.provenance
    days = sorted({one.started_at[:10] for one in makers})
    versions = sorted(
        {f"{one.areabench} ({one.git_revision})" if one.git_revision else one.areabench for one in makers}
    )
    words = (
        f"{len(paths)} runs, made on {' to '.join(dict.fromkeys((days[0], days[-1])))} with areabench "
        f"{' and '.join(versions)}, Python {first.python}, numpy {first.numpy} ({first.blas}), on {first.platform}. In "
        f"real time: {first.ranks} ranks of {first.mpi.partition(',')[0] or first.transport}. This page was written by"
    )
    return f"{paragraph(words)}\n    {command}\n"


def page_of(real: Sweep, simulated: Sweep, command: str) -> str:
    """The whole page."""
    twins = read_twins(real, simulated)
    trials = len(twins[0].real.results)
    setting = (
        f"{describe_setting(twins[0].real.experiment)}: {len(twins)} cells of {trials} trials, with the same seeds on "
        "both clocks. `make table-mpi` runs them and writes this page."
    )
    legend = (
        "Mean (min – max) over the trials at the end. A cell agrees with the simulator if accuracy and loss each have "
        f"their mean in the simulated range or within {TOLERANCE_PERCENT:g} % of the simulated mean; with the paper if "
        "both means, rounded to two decimals, lie in the published ranges (bold: this one does). A cell with a "
        "diverged trial agrees with nothing."
    )
    times_legend = (
        f"Time to {TARGET:g} % accuracy: mean over the trials that reached it, the paper's from its ρ; not reached: by "
        "half or more. Updates: mean over trials. The last two columns are means over trials of what `areabench "
        "compare` prints ([formulas](../../docs/comparing.md))."
    )
    return PAGE.format(
        setting=paragraph(setting),
        counts=counts_words(twins),
        legend=paragraph(legend),
        quality=quality_table(twins),
        times_legend=paragraph(times_legend),
        times=time_table(twins),
        origin=origin_words([result.path for sweep in (real, simulated) for result in sweep.results], command),
    )


def main(real: Path, simulated: Path, page: Path) -> None:
    """Read both sweeps, write the page."""
    command = shlex.join(["python", "analysis/table_mpi.py", str(real), str(simulated), str(page)])
    text = page_of(areabench.open_sweep(real), areabench.open_sweep(simulated), command)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
