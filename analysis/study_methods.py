"""Every method's limit, and the rates of the paper's tables 1 and 2: make study-bias, make study-methods.

python analysis/study_methods.py limits RUNS PAGE, or rates RUNS PAGE.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from paper.page_tables import markdown_table
from studies.certificate import Certificate, certificates, draw_certificates, verdict
from studies.method_rates import RateRow, draw_method_rates, lipschitz_rows, smooth_rows
from studies.points import read_points

from areabench.views.figures.style import save

LIMITS = """\
# Where every method ends under uneven rates

`make study-bias` runs [bias_methods.toml](../../experiments/studies/bias_methods.toml) in the simulator and writes
this page: quadratics without noise whose minimiser x* is known, eight clients whose rates are in geometric
progression, {trials} trials of 1000 s. The limit is the mean model of the last tenth of a run. A number is |limit -
x*|: the mean and its 95 % interval, by resampling the trials, and behind it the distance that the rule implies.

**What a rule implies.** At its limit a method has a mean step of zero. Where client i counts with the weight w_i,
that is the minimiser of Σ w_i f_i. If every update counts once, w_i is the rate λ_i. If updates count less when
they are stale, w_i = λ_i E[s(τ_i)]; with exponential delays and a step for every update the staleness is geometric,
P(τ_i = k) = p_i (1 - p_i)^k with p_i = λ_i/Σ λ_j. A table or a residual makes every w_i equal. For clients that are
drawn from the idle ones the weights come from the Markov chain of who is at work. `analysis/studies/certificate.py`
has the formulas; a dash stands where none is known.

*Exact* means: at every ratio at most a twentieth of the distance at which counting every update would end (last row).

![Limits of every method over the ratio of the rates, one panel per method](bias_methods.svg)

The grey line is the minimiser of Σ λ_i f_i, the dotted line what the method's own rule implies; values below 1.5e-6 are
drawn there.

{table}
## What to see

{facts}
"""

RATES = """\
# The rates of the paper's tables 1 and 2, measured

`make study-methods` runs [methods_smooth.toml](../../experiments/studies/methods_smooth.toml) and
[methods_lipschitz.toml](../../experiments/studies/methods_lipschitz.toml) in the simulator and writes this
page. Each row is a row of a table, under its conditions: data, delays, step sizes, averaged or last iterate. Slopes are
those of the mean error over K on logarithmic axes, with 95 % intervals by resampling the trials.

![Errors of the methods of both tables over iterations](rates_methods.svg)

## Table 1: strongly convex and smooth

A constant step γ gives O(e^(-cK) + γσ²): a larger step is faster at first and ends higher. The rate σ²/K is that of
the best step for each K, so the slope is fitted to the least error over the steps, of the averaged iterate as the
table says, and the last column shows the trade-off: the error of the *last* iterate at the end for the least and
the greatest step.

{smooth}
## Table 2: convex and Lipschitz

The error is f(average) - f*. Each K has runs of its own, as the step size depends on it.

{lipschitz}"""


def limit_table(found: Sequence[Certificate]) -> str:
    """One row per method, one column per ratio."""
    ratios = sorted({each.ratio for each in found})
    heading = ["method", *(f"ratio {ratio:,.0f}" for ratio in ratios), "measured"]
    rows = []
    for label in dict.fromkeys(each.label for each in found):
        own = {each.ratio: each for each in found if each.label == label}
        rows.append([label, *(_cell(own[ratio]) for ratio in ratios), verdict(list(own.values()))])
    first = {each.ratio: each for each in found}
    rows.append(["minimiser of Σ λ_i f_i", *(f"{first[ratio].by_rates:.3g}" for ratio in ratios), ""])
    return markdown_table(heading, rows)


def _cell(each: Certificate) -> str:
    shown = each.band
    predicted = "–" if np.isnan(each.predicted) else f"{each.predicted:.2g}"
    return f"{shown.mean[0]:.2g} ({shown.low[0]:.1g} to {shown.high[0]:.1g}); {predicted}"


def facts(found: Sequence[Certificate]) -> str:
    """Sentences about what stands in the table, with its numbers."""
    ratio = sorted({each.ratio for each in found})[-2]
    at = {each.label: float(each.distances.mean()) for each in found if each.ratio == ratio}
    by_name = {label: at[label] for label in at}
    exact = [label for label in at if verdict([each for each in found if each.label == label]).startswith("exact")]
    constant = next((at[label] for label in at if "step = constant" in label and "continue" in label), np.nan)
    adaptive = next((at[label] for label in at if "step = adaptive" in label), np.nan)
    idle = next((at[label] for label in at if "idle-uniform" in label), np.nan)
    uniform = next((at[label] for label in at if "assignment = uniform" in label), np.nan)
    sentences = [
        f"Exact are {len(exact)} of {len(by_name)}: {', '.join(exact)}.",
        f"At ratio {ratio:.0f}, delay-adaptive steps end {adaptive / constant:.2f} times as far from x* as constant "
        f"ones ({adaptive:.3g} against {constant:.3g}): they discount the slow clients a second time.",
        f"Drawing among the idle clients ends at {idle:.3g}, drawing among all at {uniform:.1g}: the idle ones are no "
        "uniform draw.",
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences)


def rate_table(rows: Sequence[RateRow]) -> str:
    """One row per row of the paper's table."""
    heading = ["method", "data", "delays, steps", "iterate", "rate of the table", "slope (95 %)", "trade-off"]
    return markdown_table(
        heading,
        [[row.method, row.data, row.conditions, row.iterate, row.claimed, str(row.slope), row.remark] for row in rows],
    )


def main(what: str, runs: Path, page: Path) -> None:
    """Read the sweeps, draw, write the page."""
    if what == "limits":
        points = read_points(runs / "bias_methods")
        found = certificates(points)
        figure, name = draw_certificates(found), "bias_methods"
        text = LIMITS.format(trials=len(points[0].traces), table=limit_table(found), facts=facts(found))
    else:
        smooth = smooth_rows(read_points(runs / "methods_smooth"))
        lipschitz = lipschitz_rows(read_points(runs / "methods_lipschitz"))
        figure, name = draw_method_rates(smooth, lipschitz), "rates_methods"
        text = RATES.format(smooth=rate_table(smooth), lipschitz=rate_table(lipschitz))
    for suffix in ("png", "svg"):
        save(figure, page.parent / f"{name}.{suffix}")
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
