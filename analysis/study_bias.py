"""Bias under uneven rates, and what slows AREA: make study-bias, or python analysis/study_bias.py RUNS PAGE."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from paper.page_tables import markdown_table
from studies.limits import NAMES, Limit, draw_limits, limit_of
from studies.points import gaps_and_bounds, read_points
from studies.server_rates import ServerRates, draw_server_rates, server_rates
from studies.slowness import Slowness, draw_slowness, final_distances, slowness_of, theorem1_bound
from studies.statistics import spread

from areabench.views.figures.style import save

PAGE = """\
# Bias under uneven rates, and what slows AREA down

`make study-bias` runs the sweeps named below in the simulator and writes this page. Intervals are 95 %, by resampling
the trials.

## The limits: only AREA's is the minimiser

[bias_ratio.toml](../../experiments/studies/bias_ratio.toml): quadratics without noise whose minimiser x* is known,
eight clients whose rates are in geometric progression, the same number of iterations for all. A method in which every
update counts approaches the minimiser of Σ p_i f_i (dotted), not that of the mean of f_i. Its distance from x* grows
with the ratio of the rates and with zeta, the distance of the clients' own minimisers. At ratio 1 FedBuff and AS-FedAvg
only fluctuate. At the largest ratio AREA has not converged yet: the slowest client makes some fifty updates in a run.

![Distance of three methods' limits to the minimiser over the ratio of the rates](bias.svg)

The limit is the mean model of the last tenth of a run:

{limits}
## p_min or q_bar?

[bias_probabilities.toml](../../experiments/studies/bias_probabilities.toml) and
[its twin](../../experiments/studies/bias_probabilities_lipschitz.toml): one or four of eight clients are
slow, at the same rates. Theorem 1's bound and step sizes depend on the slowest client (p_min);
Theorem 2's on the mean of 1/p_i (q_bar). Where the two lines of a panel coincide, the quantity on its axis decides.

![Errors of AREA over the least event probability and over the mean inverse one](probabilities.svg)

Quadratics, Theorem 1's step sizes, E|x_s,K - x*|²:

{smooth}
l1 regression, Theorem 2's step size, E[f(average) - f*]:

{lipschitz}
## The best server rate

[server_rate.toml](../../experiments/studies/server_rate.toml): the same number of iterations at nine server rates about
lambda_s*, with Theorem 2's step size at each. Up to a term of order 1/K the bound is least at lambda_s* =
sqrt(Σ lambda_i/((2/n) Σ 1/lambda_i)).

![Gap of AREA over the server's rate, measured and by the bound](server_rate.svg)

{rates}"""


def limit_table(limits: Sequence[Limit]) -> str:
    """Distances by ratio and method, for each zeta."""
    heading = ["zeta", "ratio", *NAMES.values(), "minimiser of Σ p_i f_i"]
    rows = []
    for zeta, ratio in sorted({(limit.zeta, limit.ratio) for limit in limits}):
        here = {limit.method: limit for limit in limits if (limit.zeta, limit.ratio) == (zeta, ratio)}
        found = [spread(here[method].distances) for method in NAMES]
        rows.append([f"{zeta:g}", f"{ratio:.0f}", *found, f"{here['fedbuff'].predicted:.3g}"])
    return markdown_table(heading, rows)


def slowness_table(found: Sequence[Slowness], bound: Sequence[float]) -> str:
    """Errors with p_min and q_bar, and what the bound says."""
    heading = ["slow clients", "p_min", "q_bar", "measured: mean (95 %)", "the theorem's bound"]
    rows = [
        [
            f"{each.slow}",
            f"{each.events.minimum:.4g}",
            f"{each.events.mean_inverse:.4g}",
            spread(each.errors),
            f"{value:.3g}",
        ]
        for each, value in zip(found, bound, strict=True)
    ]
    return markdown_table(heading, rows)


def server_rate_table(found: Sequence[ServerRates]) -> str:
    """Measured best rates beside the closed form."""
    heading = ["client rates", "lambda_s*, 1/s", "measured best / lambda_s* (95 %)", "gap at lambda_s* / least gap"]
    rows = []
    for each in found:
        means = each.gaps.mean(axis=0)
        middle = int(np.argmin(np.abs(np.log(each.factors))))
        rows.append([each.title, f"{each.best:.4g}", str(each.measured_best), f"{means[middle] / means.min():.3f}"])
    return markdown_table(heading, rows)


def main(runs: Path, page: Path) -> None:
    """Read the sweeps, draw, write the page."""
    points = read_points(runs / "bias_ratio")
    limits = [limit_of(point) for point in points]
    quadratics, regressions = (
        read_points(runs / name) for name in ("bias_probabilities", "bias_probabilities_lipschitz")
    )
    gaps = [gaps_and_bounds(point) for point in regressions]
    smooth = [slowness_of(point, final_distances(point)) for point in quadratics]
    lipschitz = [slowness_of(point, each.measured) for point, each in zip(regressions, gaps, strict=True)]
    rates = server_rates(read_points(runs / "server_rate"))
    figures = {
        "bias": draw_limits(limits, points),
        "probabilities": draw_slowness(smooth, lipschitz),
        "server_rate": draw_server_rates(rates),
    }
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            save(figure, page.parent / f"{name}.{suffix}")
    text = PAGE.format(
        limits=limit_table(limits),
        smooth=slowness_table(smooth, [theorem1_bound(point) for point in quadratics]),
        lipschitz=slowness_table(lipschitz, [float(each.bounds.mean()) for each in gaps]),
        rates=server_rate_table(rates),
    )
    page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
