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

**Bias or fluctuation.** With constant steps a method that draws clients, or counts updates as they come, fluctuates
about its limit. The share tells the two apart: the part of x - x* in the direction of the minimiser of Σ λ_i f_i, over
the second half of all trials, in units of that minimiser's distance. It is 0 for an exact method and 1 where every
update counts once. *Exact* means that at each ratio the share is at most 0.05 or its interval has 0, *nearly exact*
that it is at most 0.1: finite steps move a limit, too.

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
the greatest step. Rows 1 and 4 of the table have the same conditions, and are one row here. AsyncCommSGD falls faster
than 1/K at these K, because its average still forgets the start.

{smooth}
## Table 2: convex and Lipschitz

The error is f(average) - f*. Each K has runs of its own, as the step size depends on it.

{lipschitz}"""


def limit_table(found: Sequence[Certificate]) -> str:
    """One row per method, one column per ratio, and the share of the rates' bias."""
    ratios = sorted({each.ratio for each in found})
    heading = ["method", *(f"ratio {ratio:,.0f}" for ratio in ratios), "share at ratio 100 (95 %)", "measured"]
    rows = []
    for label in dict.fromkeys(each.label for each in found):
        own = {each.ratio: each for each in found if each.label == label}
        cells = [_cell(own[ratio]) for ratio in ratios]
        rows.append([label, *cells, str(own[_shown(ratios)].share), verdict(list(own.values()))])
    first = {each.ratio: each for each in found}
    rows.append(["minimiser of Σ λ_i f_i", *(f"{first[ratio].by_rates:.3g}" for ratio in ratios), "1", ""])
    return markdown_table(heading, rows)


def _shown(ratios: Sequence[float]) -> float:
    """The ratio nearest to 100."""
    return min(ratios, key=lambda ratio: abs(np.log(ratio / 100)))


def _cell(each: Certificate) -> str:
    shown = each.band
    predicted = "–" if np.isnan(each.predicted) else f"{each.predicted:.2g}"
    return f"{shown.mean[0]:.2g} ({shown.low[0]:.1g} to {shown.high[0]:.1g}); {predicted}"


def facts(found: Sequence[Certificate]) -> str:
    """Sentences about what stands in the table, with its numbers."""
    ratio = _shown(sorted({each.ratio for each in found}))
    at = {each.label: each for each in found if each.ratio == ratio}
    judged = {label: verdict([each for each in found if each.label == label]) for label in at}
    exact = [label for label, words in judged.items() if "exact" in words]
    biased = [label for label, words in judged.items() if words == "biased"]
    known = [each for each in at.values() if judged[each.label] == "biased" and each.predicted > 0]
    missed = {each.label: abs(float(each.distances.mean()) / each.predicted - 1) for each in known}
    worst = max(missed, key=lambda label: missed[label])
    others = max(share for label, share in missed.items() if label != worst)
    constant = at["AsyncSGD"].share
    adaptive = at["AsyncSGD (step = adaptive)"].share
    idle = at["AsyncSGD (assignment = idle-uniform, concurrency = 4)"].share
    uniform = at["AsyncSGD (assignment = uniform)"].share
    sentences = [
        f"Exact or nearly, at least up to a ratio: {', '.join(exact)}.",
        f"Biased: {', '.join(biased)}.",
        f"At ratio {ratio:.0f} the predicted distances of the biased methods are at most {100 * others:.0f} % off, "
        f"that of {worst} {100 * missed[worst]:.0f} %.",
        f"Delay-adaptive steps are more biased than constant ones: their share is {adaptive}, for {constant}. They "
        "discount slow clients a second time.",
        f"Drawing among idle clients is biased, share {idle}; drawing among all is not, share {uniform}.",
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
        figure = draw_certificates(found)
        name = "bias_methods"
        text = LIMITS.format(trials=len(points[0].traces), table=limit_table(found), facts=facts(found))
    else:
        smooth = smooth_rows(read_points(runs / "methods_smooth"))
        lipschitz = lipschitz_rows(read_points(runs / "methods_lipschitz"))
        figure = draw_method_rates(smooth, lipschitz)
        name = "rates_methods"
        text = RATES.format(smooth=rate_table(smooth), lipschitz=rate_table(lipschitz))
    for suffix in ("png", "svg"):
        save(figure, page.parent / f"{name}.{suffix}")
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
