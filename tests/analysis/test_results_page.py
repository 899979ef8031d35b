"""The pages of all sweeps and of their variants beside the paper, on runs made by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.agreement import (
    at_recovered_horizon,
    count,
    curve_rho,
    distance,
    fit_bound,
    is_recovered,
    kept_groups,
    matches,
)
from paper.origin import read_makers
from paper.page import results_page, write_results
from paper.published import published_cells
from paper.table import paper_tables
from paper.variants import (
    REDRAWN,
    first_round_s,
    missed_share,
    variants_page,
)
from tests.support.edited import edited
from tests.support.results import PAPER, made, sweep_of
from tests.support.texts import SWEEP

from areabench.cli.main import main
from areabench.engine.events import State
from areabench.errors import UserError
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.methods.area import Area
from areabench.methods.base import MethodSettings
from areabench.methods.criteria import EveryPeriod, EveryUpdates
from areabench.methods.fedbuff import FedBuff
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.schedules import InverseSchedule
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.problems.splits.nearly_iid import NearlyIid
from areabench.results.cells import Cell
from areabench.results.statistics import Spread
from areabench.sweeps.read import Failure, Sweep, open_sweep
from areabench.sweeps.result import Result
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import NormalRates

AREA_100 = Area(step_size=100.0)  # published for n = 128, M = 1, non-IID, uniform: 87.38 (87.07 - 87.92),
FEDBUFF_1 = FedBuff(step_size=1.0)  # 0.74 (0.73 - 0.75), 0.29; and 85.38 (84.74 - 86.21), 0.81 (0.79 - 0.82), 0.46
AREA_1000 = Area(step_size=1000.0)  # 87.54 (79.38 - 91.41), 0.59 (0.47 - 0.91), 0.09


def run(method: MethodSettings, accuracy: float, loss: float, seed: int = 1, horizon_s: float = 15.0) -> Result:
    """A run of the paper's first table; its accuracy is 80 % from the middle until before the end."""
    time_s = np.linspace(0.0, horizon_s, 5)
    accuracies = [10.0, 10.0, 80.0, 80.0, accuracy]
    experiment = replace(PAPER, method=method, stop=Stop(horizon_s=horizon_s), seed=seed)
    return made(experiment, time_s, accuracies, [4.0, 3.0, 2.0, 1.0, loss], path=Path("absent.h5"))


def with_experiment(result: Result, **changes: object) -> Result:
    return replace(result, experiment=replace(result.experiment, **changes))  # type: ignore[arg-type]


def sweep(results: Sequence[Result], failures: Sequence[Failure] = (), transport: str = "simulator") -> Sweep:
    return sweep_of(results, failures=tuple(failures), folder=Path("runs"), transport=transport)


RESULTS = (
    run(AREA_100, 87.4, 0.74),  # agrees
    run(FEDBUFF_1, 85.0, 0.90),  # the loss is out of range
    run(AREA_1000, 95.0, 0.50),  # the accuracy is out of range
)


def page(*sweeps: Sweep, folder: Path = Path("nowhere")) -> str:
    return results_page(sweeps, folder, "python analysis/results_page.py runs")


def row(text: str, start: str) -> list[str]:
    """What follows in the first table row that starts so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} "))
    return [word.strip() for word in line.strip("|").split("|")][1:]


# ---------------------------------------------------------------------------------------------------- counts


def test_agreement_is_counted_on_all_published_cells() -> None:
    found = count(matches(paper_tables(sweep(RESULTS)), published_cells(), at_recovered_horizon))
    assert (found.cells, found.run) == (127, 3)
    assert (found.both, found.accuracy, found.loss) == (1, 2, 2)
    assert found.rho == 1  # 80 % at half the horizon: only FedBuff's 0.46 is near


def test_the_page_has_a_row_of_counts_for_each_part() -> None:
    text = page(sweep(RESULTS, [Failure("x.h5", "reason")]))
    assert row(text, "all cells, at the horizons that fit the paper's values") == [
        "127",
        "3",
        "0",
        "1",
        "2",
        "2",
        "1",
        "1",
    ]
    assert row(text, "of these FedBuff") == ["32", "1", "0", "0", "1", "0", "1", "1"]


def test_other_horizons_splits_and_clocks_do_not_count() -> None:
    first = RESULTS[0]
    elsewhere = [
        with_experiment(first, stop=Stop(horizon_s=30.0)),
        with_experiment(first, split=DirichletEqual()),
        with_experiment(first, problem=Logistic(weighting="exact")),
        with_experiment(first, problem=Logistic(start_width=0.0)),
    ]
    assert all("**0 of the 127" in page(sweep([one])) for one in elsewhere)
    assert "**0 of the 127" in page(sweep([first], transport="mpi"))
    assert "**1 of the 127" in page(sweep([first]))


FIRST = RESULTS[0].experiment
FOUR = {"clients": Clients(count=4), "aggregation": EveryUpdates(updates=2)}


@pytest.mark.parametrize(
    ("counts", "changes"),
    [
        (True, {}),
        (True, {"split": NearlyIid()}),
        (True, FOUR),  # each number of clients has its split and its Delta
        (True, {**FOUR, "split": Iid()}),
        (False, {**FOUR, "split": NearlyIid()}),
        (False, {"clients": Clients(count=4)}),
        (False, {"split": Iid()}),
        (False, {"split": Dirichlet(minimum=5)}),
        (False, {"aggregation": EveryUpdates(updates=50)}),
        (False, {"aggregation": EveryPeriod(period_s=1.0)}),
        (False, {"problem": Logistic(batch_size=1)}),
        (False, {"problem": Logistic(regularisation=0.0)}),
        (False, {"delays": FixedDelays()}),
        (False, {"schedule": InverseSchedule()}),
        (False, {"stop": Stop(horizon_s=15.0, iterations=5)}),
        (False, {"stop": Stop(horizon_s=15.0, target_accuracy=90.0)}),
        (False, {"method": SFedAvg(step_size=100.0, clients_per_round=8)}),
        (False, {"method": FedBuff(step_size=1.0, server_step_size=0.5)}),
        (False, {"method": Area(step_size=100.0, first_message="zero")}),
    ],
)
def test_only_the_papers_experiment_counts(counts: bool, changes: dict[str, object]) -> None:
    assert at_recovered_horizon(FIRST, replace(published_cells()[0], horizon_s=15.0))
    assert is_recovered(replace(FIRST, **changes)) is counts  # type: ignore[arg-type]


def test_a_cell_that_was_run_twice_is_an_error_that_names_both_folders() -> None:
    here, there = (replace(RESULTS[0], path=Path(name) / "run.h5") for name in ("here", "there"))
    with pytest.raises(UserError, match=r"^here and there: the cell M_1_n_128_non_iid, uniform rates, area at 100 was"):
        page(sweep([here]), sweep([there]))


def test_a_cell_with_missing_trials_is_counted_as_incomplete() -> None:
    half = sweep([RESULTS[0]])
    absent = replace(half.plan.members[0], seed=2, experiment=replace(RESULTS[0].experiment, seed=2))
    half = replace(half, plan=replace(half.plan, members=(*half.plan.members, absent)))
    text = page(half)
    assert row(text, "all cells, at the horizons that fit the paper's values")[:4] == ["127", "1", "1", "0"]
    assert "## Cells that do not agree" not in text


def test_the_printed_horizon_has_a_count_and_columns_of_its_own() -> None:  # published: 87.46, 0.48 (0.46 - 0.52)
    four = Clients(count=4, local_steps=50)
    two = EveryUpdates(updates=2)
    short = with_experiment(run(Area(step_size=1.0), 87.46, 0.48), clients=four, aggregation=two)
    long = with_experiment(run(Area(step_size=1.0), 87.46, 0.30, horizon_s=100.0), clients=four, aggregation=two)
    text = page(sweep([short]), sweep([long]))
    assert row(text, "all cells, at the horizons that fit the paper's values")[:4] == ["127", "1", "0", "1"]
    assert row(text, "n = 4, M = 50 at the printed horizon of 100 s") == ["32", "1", "0", "0", "1", "0", "0", "0"]
    shown = row(text, "AREA, 1, uniform")
    assert shown[3:6] == ["0.48 (0.46 – 0.52)", "**0.48 (0.48 – 0.48)**", "0.30 (0.30 – 0.30)"]
    assert "at both horizons" not in page(sweep([short]))


def test_rho_of_the_mean_curve() -> None:
    low = run(AREA_100, 90.0, 1.0)
    high = run(AREA_100, 90.0, 1.0, seed=2)
    high = replace(high, test_accuracy=np.array([10.0, 10.0, 79.0, 82.0, 90.0]))
    assert curve_rho(Cell((low, high), 2, 80.0)) == pytest.approx(0.75)
    assert math.isinf(curve_rho(Cell((replace(low, test_accuracy=np.full(5, 79.0)),), 1, 80.0)))
    assert math.isnan(curve_rho(Cell((replace(low, status=replace(low.status, state=State.DIVERGED)),), 1, 80.0)))


# ---------------------------------------------------------------------------------------------------- gaps


def test_disagreeing_cells_are_listed_with_their_distance() -> None:
    text = page(sweep(RESULTS))
    shown = row(text, "FedBuff, 1, uniform")
    assert (shown[1], shown[7:9]) == ("**85.00 (85.00 – 85.00)**", ["+0.09", "+6.0"])
    assert "- 1 by the accuracy only, 1 by the loss only, 0 by both" in text
    near = [run(AREA_100, 87.93, 0.74), run(FEDBUFF_1, 84.0, 0.80), run(FEDBUFF_1, 85.0, 0.80, seed=2)]
    text = " ".join(page(sweep(near)).split())
    assert "by no more than 0.01, the last printed digit: 1" in text
    assert "fall where some of the paper's did: 1" in text
    assert "## Cells that do not agree" not in page(sweep(RESULTS[:1]))


def test_distance_is_in_published_half_ranges() -> None:
    assert distance(Spread(3.0, 0.0, 9.0), Spread(2.0, 1.0, 5.0)) == pytest.approx(0.5)
    assert distance(Spread(0.40, 0.4, 0.4), Spread(0.39, 0.39, 0.39)) == pytest.approx(2.0)
    assert math.isnan(distance(None, Spread(2.0, 1.0, 5.0)))


def test_the_other_split_stands_beside_the_gaps() -> None:
    other = with_experiment(run(FEDBUFF_1, 85.4, 0.80), split=DirichletEqual())
    text = page(sweep(RESULTS), sweep([other]))
    assert row(text, "FedBuff, 1, uniform")[-1] == "**0.80 (0.80 – 0.80)**"
    assert row(text, "non-IID cells with the equal-sized split")[:4] == ["64", "1", "0", "1"]


# ---------------------------------------------------------------------------------------------------- retention


def test_retention_is_compared_and_a_bound_is_fitted() -> None:  # the paper keeps 100 and 1000
    results = [run(Area(step_size=size), 50.0, loss) for size, loss in ((1e2, 0.7), (1e3, 2.0), (1e4, 60.0))]
    (group,) = kept_groups(results)
    assert (group.by_rule(), group.by_paper, group.next_loss) == ((1e3, 1e4), (1e2, 1e3), 60.0)
    fit = fit_bound([group])
    assert fit is not None
    assert (fit.lowest, fit.highest, fit.equal) == (2.0, 60.0, 1)
    assert "| **1000, 10000** | **1000, 10000** | 100, 1000 | 60.00 |" in page(sweep(results))


def test_retention_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = {Path(f"{size:g}.h5"): gap for size, gap in ((1e2, 10.0), (1e3, 100.0), (1e4, 104.0))}
    results = [
        replace(run(Area(step_size=size), 50.0, 1.0), path=path)
        for path, size in zip(gaps, (1e2, 1e3, 1e4), strict=True)
    ]
    monkeypatch.setattr("paper.agreement.score_gaps", lambda runs: gaps)
    assert "| **1000, 10000** | 100, 1000 | 100, 1000 | 1.00 |" in page(sweep(results))


def test_retention_is_judged_on_the_runs_that_count() -> None:
    assert kept_groups([with_experiment(RESULTS[0], stop=Stop(horizon_s=1.0))]) == ()
    assert fit_bound(()) is None


# ---------------------------------------------------------------------------------------------------- files


def test_the_page_links_the_figures_that_exist_and_is_written(tmp_path: Path) -> None:
    (tmp_path / "figures" / "iid").mkdir(parents=True)
    for name in ("iid/curves.png", "iid/curves.svg", "staleness.png"):
        (tmp_path / "figures" / name).touch()
    output = tmp_path / "RESULTS.md"
    write_results([sweep(RESULTS)], output, "command")
    text = output.read_text(encoding="utf-8")
    assert re.findall(r"!\[.*?\]\((.*?)\)", text) == ["figures/iid/curves.svg", "figures/staleness.png"]
    with pytest.raises(UserError, match="cannot be written"):
        write_results([sweep(RESULTS)], output / "below", "command")


# ---------------------------------------------------------------------------------------------------- origin


def test_the_page_names_every_revision(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SWEEP, encoding="utf-8")
    assert main(["sweep", str(tmp_path / "small.toml"), "--output", str(tmp_path / "small"), "--jobs", "1"]) == 0
    paths = sorted((tmp_path / "small").glob("*.h5"))
    with edited(paths[-1]) as file:
        file["provenance"].attrs["git_revision"] = "other"
    broken = tmp_path / "broken.h5"
    broken.write_bytes(b"nothing")
    assert [one.git_revision == "other" for one in read_makers([*paths, broken])] == [False, False, False, True]
    words = " ".join(page(open_sweep(tmp_path / "small")).split())
    assert re.search(r"with areabench \S+ .*for 3 runs and \S+ \(other\) for 1 run, Python", words)


# ---------------------------------------------------------------------------------------------------- variants

# Published for n = 128, M = 50, IID. AREA at 100, uniform: rho 0.14, 90.87 (90.67 - 91.11), 0.51 (0.50 - 0.52);
# S-FedAvg at 100, non-uniform: 87.76 (81.34 - 90.49), 0.68 (0.52 - 0.94).
ZERO = Area(step_size=100.0, first_message="zero")
LONG = Experiment(
    clients=Clients(count=128, local_steps=50), method=AREA_100, stop=Stop(horizon_s=2.0), problem=Logistic(),
    data=Mnist(), split=NearlyIid(), aggregation=EveryUpdates(updates=4), seed=1,
)  # fmt: skip
SLOW = replace(LONG, method=SFedAvg(step_size=100.0), rates=NormalRates())


def result(experiment: Experiment, reached_s: float, accuracy: float, loss: float, steps: int = 9) -> Result:
    """A run that has 80 % accuracy at one time, and these numbers at the end."""
    found = made(experiment, [0.0, reached_s, 2.0], [10.0, 80.0, accuracy], [4.0, 1.0, loss], path=Path("absent.h5"))
    return replace(found, status=replace(found.status, server_steps=steps))


def variants(*results: Result) -> str:
    return variants_page([sweep_of(results)], "")


def test_both_first_messages_stand_beside_the_paper() -> None:
    text = variants(result(LONG, 0.16, 90.9, 0.51), result(replace(LONG, method=ZERO), 0.28, 90.9, 0.60))
    # agree: only the first one's loss is in range; rho 0.08 and 0.14
    assert row(text, "all") == ["1", "1", "0", "0", "1", "0.060", "0.000", "0", "1"]
    assert row(text, "AREA, 100, uniform")[1:4] == ["0.14", "0.08", "**0.14**"]


def test_a_cell_that_was_run_with_one_first_message_is_left_out() -> None:
    assert "## AREA's first message" not in variants(result(LONG, 0.16, 90.9, 0.51))


def test_redrawn_splits_stand_beside_the_counted_one() -> None:
    counted = replace(LONG, split=Dirichlet())  # at 100, uniform: 0.38, 88.02 (87.53 - 88.32), 0.59 (0.58 - 0.61)
    again = replace(counted, split=REDRAWN)
    text = variants(result(counted, 0.6, 88.0, 0.7), result(again, 0.7, 88.0, 0.6))
    assert row(text, "AREA, 100, uniform")[1:9] == [
        "0.38", "0.30", "**0.35**", "not run",
        "0.59 (0.58 – 0.61)", "0.70 (0.70 – 0.70)", "**0.60 (0.60 – 0.60)**", "not run",
    ]  # fmt: skip
    assert "- redrawn: 1 of 1 cells agree, ρ within 0.05 in 1\n" in text


def test_trials_without_a_server_step_are_left_out_beside_all() -> None:
    moved = result(SLOW, 0.5, 88.0, 0.60)
    stuck = result(replace(SLOW, seed=2), 2.0, 6.0, 5.0, steps=0)
    text = variants(moved, stuck)
    assert row(text, "S-FedAvg, 100, non-uniform") == [
        "87.76 (81.34 – 90.49)", "47.00 (6.00 – 88.00)", "**88.00 (88.00 – 88.00)**",
        "0.68 (0.52 – 0.94)", "2.80 (0.60 – 5.00)", "**0.60 (0.60 – 0.60)**",
    ]  # fmt: skip
    assert "happens to 2.7 % of the trials" in " ".join(text.split())
    assert "## S-FedAvg" not in variants(moved)


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
