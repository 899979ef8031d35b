"""The tables of the page that `study_bias.py` writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paper.page_tables import markdown_table
from studies.figure_limits import NAMES
from studies.limits import Limit
from studies.server_rates import ServerRates
from studies.slowness import Slowness
from studies.statistics import spread


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
