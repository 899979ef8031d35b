"""The rates of the two theorems, measured: make study-rates, or python analysis/study_rates.py RUNS PAGE."""

from __future__ import annotations

import sys
from pathlib import Path

from paper.page_tables import markdown_table
from studies.points import read_points
from studies.rates import FITTED_FROM, Curve, draw_rates, theorem1_curve, theorem2_curves

from areabench.views.figures.style import save


def table(curves: list[Curve], power: str) -> str:
    """Slopes and how far the bounds are."""
    heading = ["setting", "trials", "d", "K", f"slope ({power})", "bound / measured at the end", "points above a bound"]
    rows = []
    for curve in curves:
        mean = curve.values.mean(axis=0)[-1]
        loose = f"{curve.bound[-1] / mean:,.3g}"
        if curve.closed is not None:
            loose += f" (closed form {curve.closed[-1] / mean:,.3g})"
        offset = f"{curve.offset:,.0f}" if curve.offset else ""
        crossed = f"{curve.crossings} of {len(curve.iterations)}"
        trials = str(len(curve.values))
        last = f"{curve.iterations[-1]:,.0f}"
        rows.append([curve.title, trials, offset, last, str(curve.slope), loose, crossed])
    return markdown_table(heading, rows)


PAGE = """\
# The rates of the two theorems, measured

`make study-rates` runs [rates_smooth.toml](../../experiments/studies/rates_smooth.toml) and
[rates_lipschitz.toml](../../experiments/studies/rates_lipschitz.toml) in the simulator and writes this page.
AREA has the theorems' own step sizes, the server steps at the arrivals of a Poisson
process with the rate lambda_s* of each setting. Intervals are 95 %, by resampling the trials.

![Measured errors of AREA over iterations, with the bounds of both theorems above them](rates.svg)

## Theorem 1: E|x_s,K - x*|² falls as 1/K

Strongly convex quadratics (mu = 1, L = 2, zeta = 1, sigma = 1). The step sizes are c/(k + d), so the slope is fitted
over K + d, from K = {from_:g} d on; for large K the two are the same. The bounds are those of `areabench.theory`, whose
constants differ from print in places ([corrections](../../../docs/theory-corrections.md)): the recursion iterates the
lemmas' own inequalities, the closed form sums them up.

{first}
## Theorem 2: E[f(average) - f*] falls as 1/sqrt(K)

l1 regression with mini-batches; the minimum comes from a linear program. Each K has runs of its own, as the step size
depends on it. With few samples f is piecewise linear with a sharp minimum, the case that the theorem's rate is made
for; with many samples f is nearly smooth.

{second}"""


def main(runs: Path, page: Path) -> None:
    """Read the sweeps, draw, write the page."""
    first = [theorem1_curve(point) for point in read_points(runs / "rates_smooth")]
    second = theorem2_curves(read_points(runs / "rates_lipschitz"))
    figure = draw_rates([first, second])
    for suffix in ("png", "svg"):
        save(figure, page.parent / f"rates.{suffix}")
    text = PAGE.format(from_=FITTED_FROM, first=table(first, "-1"), second=table(second, "-1/2"))
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
