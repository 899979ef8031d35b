"""The page of the variants: which runs are compared, and the trials of S-FedAvg whose model never moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.agreement import at_recovered_horizon, is_recovered
from paper.published import published, published_cells
from paper.variants import (
    REDRAWN,
    first_round_s,
    missed_share,
    redrawn,
    redrawn_zero_first,
    variants_page,
    zero_first,
)
from tests.support.results import made, sweep_of

from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryUpdates
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.sweeps.plan import load_sweep
from areabench.sweeps.read import Result
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import NormalRates

VARIANTS = Path(__file__).parents[2] / "benchmarks" / "experiments" / "paper" / "variants"
# Published for n = 128, M = 50, IID. AREA at 100, uniform: rho 0.14, 90.87 (90.67 - 91.11), 0.51 (0.50 - 0.52);
# S-FedAvg at 100, non-uniform: 87.76 (81.34 - 90.49), 0.68 (0.52 - 0.94).
TRAINED, ZERO = Area(step_size=100.0), Area(step_size=100.0, first_message="zero")
PAPER = Experiment(
    clients=Clients(count=128, local_steps=50), method=TRAINED, stop=Stop(horizon_s=2.0), problem=Logistic(),
    data=Mnist(), split=NearlyIid(), aggregation=EveryUpdates(updates=4), seed=1,
)  # fmt: skip
SLOW = replace(PAPER, method=SFedAvg(step_size=100.0), rates=NormalRates())


def result(experiment: Experiment, reached_s: float, accuracy: float, loss: float, steps: int = 9) -> Result:
    """A run that has 80 % accuracy at one time, and these numbers at the end."""
    found = made(experiment, [0.0, reached_s, 2.0], [10.0, 80.0, accuracy], [4.0, 1.0, loss], path=Path("absent.h5"))
    return replace(found, status=replace(found.status, server_steps=steps))


def page(results: Sequence[Result]) -> str:
    return variants_page([sweep_of(results)], "")


def row(text: str, start: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} "))
    return [word.strip() for word in line.strip("|").split("|")][1:]


def test_a_run_whose_first_messages_are_zero_is_a_variant() -> None:
    def with_method(method: MethodSettings) -> Experiment:
        return replace(PAPER, method=method)

    assert is_recovered(with_method(TRAINED))
    assert not is_recovered(with_method(ZERO))


def test_sweeps_have_every_published_cell_of_area_ten_times_with_both_first_messages() -> None:
    plans = [load_sweep(path) for path in sorted(VARIANTS.glob("first_message_*.toml"))]
    planned = [experiment for plan in plans for experiment in plan.experiments]
    for counts in (at_recovered_horizon, zero_first):
        cells = [published(one) for one in planned if (cell := published(one)) and counts(one, cell)]
        assert Counter(cells) == {cell: 10 for cell in published_cells() if cell.method == "area"}


def test_redrawn_sweeps_have_the_published_cells_of_128_clients() -> None:
    plans = [load_sweep(path) for path in sorted(VARIANTS.glob("redrawn_*.toml"))]
    planned = [experiment for plan in plans for experiment in plan.experiments]
    wanted = [cell for cell in published_cells() if (cell.clients, cell.split) == (128, "non-iid")]
    cells = [cell for one in planned if (cell := published(one)) and redrawn(one, cell)]
    assert Counter(cells) == dict.fromkeys(wanted, 10)
    cells = [cell for one in planned if (cell := published(one)) and redrawn_zero_first(one, cell)]
    assert Counter(cells) == {cell: 10 for cell in wanted if cell.method == "area"}


def test_both_first_messages_stand_beside_the_paper() -> None:
    text = page([result(PAPER, 0.16, 90.9, 0.51), result(replace(PAPER, method=ZERO), 0.28, 90.9, 0.60)])
    # agree: only the first one's loss is in range; rho 0.08 and 0.14
    assert row(text, "all") == ["1", "1", "0", "0", "1", "0.060", "0.000", "0", "1"]
    assert row(text, "AREA, 100, uniform")[1:4] == ["0.14", "0.08", "**0.14**"]


def test_a_cell_that_was_run_with_one_first_message_is_left_out() -> None:
    assert "## AREA's first message" not in page([result(PAPER, 0.16, 90.9, 0.51)])


def test_redrawn_splits_stand_beside_the_counted_one() -> None:
    counted = replace(PAPER, split=Dirichlet())  # at 100, uniform: 0.38, 88.02 (87.53 - 88.32), 0.59 (0.58 - 0.61)
    again = replace(counted, split=REDRAWN)
    text = page([result(counted, 0.6, 88.0, 0.7), result(again, 0.7, 88.0, 0.6)])
    assert row(text, "AREA, 100, uniform")[1:9] == [
        "0.38", "0.30", "**0.35**", "not run",
        "0.59 (0.58 – 0.61)", "0.70 (0.70 – 0.70)", "**0.60 (0.60 – 0.60)**", "not run",
    ]  # fmt: skip
    assert "- redrawn: 1 of 1 cells agree, ρ within 0.05 in 1\n" in text


def test_trials_without_a_server_step_are_left_out_beside_all() -> None:
    moved, stuck = result(SLOW, 0.5, 88.0, 0.60), result(replace(SLOW, seed=2), 2.0, 6.0, 5.0, steps=0)
    text = page([moved, stuck])
    assert row(text, "S-FedAvg, 100, non-uniform") == [
        "87.76 (81.34 – 90.49)", "47.00 (6.00 – 88.00)", "**88.00 (88.00 – 88.00)**",
        "0.68 (0.52 – 0.94)", "2.80 (0.60 – 5.00)", "**0.60 (0.60 – 0.60)**",
    ]  # fmt: skip
    assert "happens to 2.7 % of the trials" in " ".join(text.split())
    assert "## S-FedAvg" not in page([moved])


def test_the_first_round_waits_for_the_slowest_of_its_clients() -> None:
    rates = NormalRates(mean=10.0, deviation=0.0)
    assert first_round_s(replace(SLOW, rates=rates, delays=FixedDelays())) == 0.1
    everybody = SFedAvg(step_size=1.0, clients_per_round=128)
    assert first_round_s(replace(SLOW, seed=3)) < first_round_s(replace(SLOW, seed=3, method=everybody))


def test_share_of_missed_rounds() -> None:
    equal = replace(SLOW, rates=NormalRates(mean=0.5, deviation=1e-6))  # exp(-1) late, each of four
    assert missed_share(equal) == pytest.approx(1 - (1 - np.exp(-1)) ** 4, rel=1e-4)
    rates = np.linspace(1e-4, 60.0, 600_001)  # the integral that the closed form stands for
    weights = np.exp(-(((rates - 10.0) / 5.0) ** 2) / 2)
    late = (weights * np.exp(-2.0 * rates)).sum() / weights.sum()
    assert missed_share(SLOW) == pytest.approx(1 - (1 - late) ** 4, rel=1e-3)
