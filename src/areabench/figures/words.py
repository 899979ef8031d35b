"""Settings in the words of figures: titles and rates."""

from __future__ import annotations

from areabench.experiment import Experiment, LognormalRates, NormalRates, RateSettings, UniformRates
from areabench.figures.data import Page
from areabench.looks import method_label


def title_of(page: Page) -> str:
    """Number of clients, local steps, split, horizon, and what else tells the page from others."""
    said = ("clients.", "split.", "stop.horizon_s", "stop.iterations")
    others = [f"{key} = {value}" for key, value in page.differences if not key.startswith(said)]
    return ", ".join([*_settings(page.experiment), _trials(page), *others])


def _settings(experiment: Experiment) -> list[str]:
    clients, stop = experiment.clients, experiment.stop
    horizon = f"horizon {stop.horizon_s:g} s" if stop.horizon_s is not None else f"{stop.iterations:,} iterations"
    return [f"n = {clients.count}", f"M = {clients.local_steps}", split_name(experiment), horizon]


def split_name(experiment: Experiment) -> str:
    """Data and split in words."""
    if experiment.data is None or experiment.split is None:
        return f"{method_label(experiment.problem.name)} problem"
    split = experiment.split
    concentration = getattr(split, "concentration", None)
    shape = f" ({concentration:g})" if concentration else ""
    return f"split {method_label(split.name)}{shape} of {method_label(experiment.data.name)}"


def _trials(page: Page) -> str:
    counts = {len(cell.results) for row in page.rows for one in row.contenders for cell in one.cells}
    least, most = min(counts), max(counts)
    number = f"{least}" if least == most else f"{least} to {most}"
    return f"{number} trial{'s' if most > 1 else ''}"


def rates_name(rates: RateSettings) -> str:
    """A rates setting in words, with units."""
    if isinstance(rates, UniformRates):
        return f"uniform rates, {rates.rate:g} updates/s"
    if isinstance(rates, NormalRates):
        return f"normal rates, {rates.mean:g} ± {rates.deviation:g} updates/s"
    if isinstance(rates, LognormalRates):
        return f"lognormal rates, median {rates.median:g} updates/s, σ = {rates.sigma:g}"
    return f"listed rates, {min(rates.values):g} to {max(rates.values):g} updates/s"
