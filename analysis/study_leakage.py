"""What a curious server learns from messages: make study-leakage, or python analysis/study_leakage.py PAGE.

With --trials 1 it is a quick look.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from paper.page_tables import bullets, entry_table, markdown_table
from studies.leakage_figures import Block, Row, draw_blocks
from studies.leakage_matching import MOST_IMAGES, REDUCED_IMAGES
from studies.leakage_observations import RECOVERED
from studies.leakage_scores import CEILING_DB, Images
from studies.leakage_trials import (
    METHODS,
    PUBLIC,
    Cell,
    Found,
    Plan,
    Setting,
    Values,
    run_plan,
    single_settings,
    summed_settings,
)

from areabench.experiment.labels import method_label
from areabench.progress import Show, terminal_bar
from areabench.results.statistics import SIGNIFICANCE, holm, paired_difference
from areabench.threads import limited_threads
from areabench.views.figures.style import save
from areabench.views.tables.forms import TableCell

EXPERIMENT = Path(__file__).parents[1] / "benchmarks" / "experiments" / "studies" / "leakage.toml"
SINGLE = (("area", "message"), ("area", "history"), ("fedbuff", "message"), ("as-fedavg", "message"))
NAMES = {
    ("area", "message"): "AREA, one message",
    ("area", "history"): "AREA, running sum",
    ("fedbuff", "message"): "FedBuff, one message",
    ("as-fedavg", "message"): "AS-FedAvg, one message",
}
GUESSES = ("mean image", "class means")
_SHOWN = 8  # images of a row of a figure

PAGE = """\
# What a curious server learns from messages

The paper says that AREA's residuals are less susceptible to gradient inversion. **They are not: a server that keeps
one running sum per client has every pseudo-gradient** ([entry 27](../../../docs/theory-corrections.md)). What
hinders the attacks below, with every method, is secure aggregation with enough updates in a sum. `make study-leakage`
measures what an honest-but-curious server finds of the images that clients hold, from AREA's residuals, FedBuff's
pseudo-gradients and AS-FedAvg's models, and writes this page.

{short}
A cell is the mean PSNR of the images that were found, and the share of right labels, each with its 95 % interval over
{victims} victims (bootstrap); mini-batch 1, M = 1, logistic regression. **Bold**: images or labels are better than
both guesses of who has seen no message, outside the noise. One guess is the mean image of public data with its most
frequent label, the other the mean images of the classes, as often as they are in public data.

{conclusions}
![Images held by clients, and what was found of them from messages of three methods](leakage.png)

## How it is measured

Messages come from runs of the simulator with the rules of the package:
[leakage.toml](../../experiments/studies/leakage.toml), MNIST, n = {clients}, {trials} seeds, the same arrivals and
mini-batches for all methods. A wrapper around the rule copies what passes. Victims are drawn by the seed from the
second half of a run; none is its client's first message. FedBuff's server step size is Δ/n, so that an update moves
the model as far as in AREA. AS-FedAvg has no such key: its model is trained further, and images that it
classifies well leave smaller gradients. Where methods differ although their pseudo-gradients are known, it is such a
difference of the models, not of the messages.

- **One message**: the update, and the model that it answers. Of AREA it is taken for the pseudo-gradient, which is
  right for a client's first message only.
- **Running sum**: y_i = x_{{s,0}} + the sum of client i's residuals. FedBuff and AS-FedAvg need none.
- **Secure aggregation**: only the sum of the Δ updates of a server step, who took part, and all models that were sent.
  Of FedBuff and AS-FedAvg that gives the sum of Δ pseudo-gradients; of AREA the sum of the Δ new ones minus that of
  the Δ that they replace.

**Closed form**, for one image and one local step of logistic regression: the gradient is (p - e_y) x', so the label's
row is the negative one, and the image is the multiple of it whose own probabilities p fit. **Matching**, otherwise:
look for images in [0, 1] and labels whose rounds give what was observed, through all M local steps, by L-BFGS-B from
the mean image. It takes {iterations} iterations for one local step, from {starts} starts if images are few, and {deep}
for more. The numbers of the labels are first estimated from row sums, with {public} public images. With more than
{most} images the form is **reduced**: all local steps use the same {reduced} images, over all rounds, and each stands
for several held ones. Held and found images are paired so that the error is least, which helps the guess by class means
as well. PSNR is -10 log10 of the mean squared error, at most {ceiling:.0f} dB.

**A failed attack is no proof of privacy.** These attacks are simple, and have no model of what digits look like. Where
a number is low, a better attack may find more. Where it is high, the image is out. PSNR counts noise that an eye
ignores: some digits below the mean image's PSNR can be read in the figures.
Iterations, starts and FedBuff's step size were chosen by a look at the first two seeds, which are counted here.

## Pseudo-gradients from messages alone

The share of all pseudo-gradients with a relative error below {recovered:g}, over all runs with logistic regression, and
the median and the largest error:

{facts}
The residuals that are pseudo-gradients are the first ones of the clients.

Under secure aggregation no sum is one of its updates. The median distance of a step's mean from each of its
pseudo-gradients, relative to these, and how many of all x_i the sums of a whole run determine, if it is known who took
part in each step (mini-batch 1, M = 1):

{sums}
In AREA the sums determine the x_i of a client's last update in a step if and only if the client has been alone in
every step that it took part in: all Δ updates came from it. A protocol for secure aggregation has to refuse such steps.

## One client: mini-batch and local steps

Logistic regression, {victims} victims, the server steps after 4 updates:

{single}
## Secure aggregation

Logistic regression, {victims} server steps. The difference is paired by server step; p values are of a permutation
test, corrected by Holm's method for all rows of the table. Where no cell is bold, it compares two failed attacks.

{summed}
## A small convolutional network

Two convolutions and a linear layer, {parameters:,} parameters, by matching: {cnn_iterations} iterations, {cnn_deep}
for ten local steps, one start; {cnn_victims} victims. M = 50 is left out: matching differentiates twice through every
step, and with M = 10 it already ends before it has converged.

{cnn}
Under secure aggregation:

{cnn_summed}
![Images held by clients, and what was found of them through a convolutional network](leakage_cnn.png)
"""


# ---------------------------------------------------------------------------------------------------- tables


def short_table(plan: Plan, found: Found) -> str:
    """Who learns what: mini-batch 1, one local step."""
    first = Setting("logistic", plan.batches[0], plan.local_steps[0], 4)
    heading = ["the server sees", *map(method_label, METHODS), "no message: class means"]
    cells = [found.cell(first, method, "message") for method in METHODS]
    rows = [[TableCell("one message"), *map(_entry, cells), _plain(cells[0].classed)]]
    history = [_entry(found.cell(first, "area", "history")), *(_entry(cell) for cell in cells[1:])]
    rows.append([TableCell("all messages of a client"), *history, _plain(cells[0].classed)])
    for updates in plan.updates:
        setting = Setting("logistic", *plan.summed[0], updates)
        cells = [found.cell(setting, method, "sum") for method in METHODS]
        rows.append([TableCell(f"sums of {updates} updates"), *map(_entry, cells), _plain(cells[0].classed)])
    return entry_table(heading, rows)


def _entry(cell: Cell) -> TableCell:
    """A cell in words, bold where something was learnt."""
    return TableCell(str(cell.found), is_bold=cell.has_learnt)


def _plain(values: Values) -> TableCell:
    return TableCell(str(values))


def fact_table(plan: Plan, found: Found) -> str:
    """Recovered pseudo-gradients by method, observation and M."""
    rows = []
    for key in SINGLE:
        for steps in plan.local_steps:
            facts = [
                fact
                for fact in found.facts
                if (fact.method, fact.view) == key
                and fact.setting.local_steps == steps
                and fact.setting.model == "logistic"
            ]
            errors = np.concatenate([fact.errors for fact in facts])
            share = f"{100 * (errors < RECOVERED).mean():.1f} % of {len(errors):,}"
            rows.append([NAMES[key], f"{steps}", share, f"{np.median(errors):.1e}", f"{errors.max():.1e}"])
    return markdown_table(["observation", "M", "recovered", "median error", "largest error"], rows)


def sum_table(plan: Plan, found: Found) -> str:
    """How far sums are from single updates."""
    rows = []
    for updates in plan.updates:
        setting = Setting("logistic", *plan.summed[0], updates)
        words = []
        for method in METHODS:
            wanted = (setting, method, "sum")
            fact = next(each for each in found.facts if (each.setting, each.method, each.view) == wanted)
            words.append(f"{np.median(fact.errors):.2f}; {fact.determined} of {len(fact.errors):,}")
        rows.append([f"{updates}", *words])
    return markdown_table(["Δ", *map(method_label, METHODS)], rows)


def single_table(found: Found, settings: Sequence[Setting]) -> str:
    """One row per mini-batch and M."""
    rows = []
    for setting in settings:
        cells = [found.cell(setting, *key) for key in SINGLE]
        varied = [TableCell(f"{setting.batch_size}"), TableCell(f"{setting.local_steps}")]
        rows.append([*varied, *_guesses(cells[0]), *map(_entry, cells)])
    return entry_table(["mini-batch", "M", *GUESSES, *NAMES.values()], rows)


def summed_table(found: Found, settings: Sequence[Setting]) -> str:
    """One row per mini-batch, M and Delta, with the difference of AREA and FedBuff."""
    rows = []
    differences = []
    for setting in settings:
        cells = [found.cell(setting, method, "sum") for method in METHODS]
        differences.append(paired_difference(cells[0].found.psnr_db, cells[1].found.psnr_db))
        varied = [TableCell(f"{number}") for number in (setting.batch_size, setting.local_steps, setting.updates)]
        rows.append([*varied, *_guesses(cells[0]), *map(_entry, cells)])
    for row, each, p in zip(rows, differences, holm([each.p for each in differences]), strict=True):
        row.append(TableCell(f"{each.mean:+.1f} dB ({each.low:+.1f} to {each.high:+.1f}), p = {p:.2g}"))
    heading = ["mini-batch", "M", "Δ", *GUESSES, *map(method_label, METHODS), "AREA - FedBuff (95 %)"]
    return entry_table(heading, rows)


def _guesses(cell: Cell) -> list[TableCell]:
    return [_plain(cell.guessed), _plain(cell.classed)]


# ---------------------------------------------------------------------------------------------------- sentences


def conclusions(plan: Plan, found: Found) -> str:
    """What the numbers say, and no more."""
    return bullets(
        [_about_histories(plan, found), _about_one_message(plan, found), _about_sums(plan, found)]
        + [_about_many_images(plan, found), _about_the_network(plan, found)]
    )


def _about_histories(plan: Plan, found: Found) -> str:
    settings = [Setting("logistic", batch, plan.local_steps[0], 4) for batch in plan.batches]
    errors = np.concatenate([each.errors for each in found.facts if (each.method, each.view) == ("area", "history")])
    pairs = [(found.cell(each, "area", "history"), found.cell(each, "fedbuff", "message")) for each in settings]
    apart = [
        str(one.setting.batch_size) for (one, _), p in zip(pairs, _chances(pairs), strict=True) if p < SIGNIFICANCE
    ]
    noise = f"Outside the noise they differ at {', '.join(apart)}." if apart else "No difference is outside the noise."
    return (
        f"**AREA with a running sum leaks what FedBuff leaks.** {100 * (errors < RECOVERED).mean():.1f} % of "
        f"{len(errors):,} pseudo-gradients are recovered, with a relative error of at most {errors.max():.0e}. Images "
        f"have {_decibels([one for one, _ in pairs])} with mini-batch {_listed(plan.batches)}, FedBuff's "
        f"{_decibels([other for _, other in pairs])}. {noise}"
    )


def _about_one_message(plan: Plan, found: Found) -> str:
    settings = [Setting("logistic", batch, plan.local_steps[0], 4) for batch in plan.batches]
    cells = [found.cell(each, "area", "message") for each in settings]
    pairs = [(cell, found.cell(cell.setting, "fedbuff", "message")) for cell in cells]
    less = [
        one.setting.batch_size
        for (one, other), p in zip(pairs, _chances(pairs), strict=True)
        if p < SIGNIFICANCE and one.found.psnr_db.mean() < other.found.psnr_db.mean()
    ]
    learnt = [cell.setting.batch_size for cell in cells if cell.has_learnt]
    return (
        f"**One later residual alone shows less than a pseudo-gradient**, outside the noise with mini-batch "
        f"{_listed(less)}: images have {_decibels(cells)} with mini-batch {_listed(plan.batches)}. This takes a server "
        "that forgets, is more than a guess with mini-batch "
        f"{_listed(learnt)}, and is no use in a client's first round, whose residual is the pseudo-gradient itself."
    )


def _about_sums(plan: Plan, found: Found) -> str:
    """What secure aggregation changes, and where the methods differ outside the noise."""
    settings = [setting for setting in summed_settings(plan) if setting.model == "logistic"]
    pairs = [(found.cell(each, "area", "sum"), found.cell(each, "fedbuff", "sum")) for each in settings]
    rows = [
        (one, other, p)
        for (one, other), p in zip(pairs, _chances(pairs), strict=True)
        if (one.setting.batch_size, one.setting.local_steps) == plan.summed[0]
    ]
    signs = [np.sign((one.found.psnr_db - other.found.psnr_db).mean()) * (p < SIGNIFICANCE) for one, other, p in rows]
    worse, even, better = (
        [row[0].setting.updates for row, sign in zip(rows, signs, strict=True) if sign == wanted]
        for wanted in (-1, 0, 1)
    )
    words = (
        f"**Secure aggregation hinders the attack, for every method.** In sums of {_listed(plan.updates)} updates "
        f"FedBuff's images have {_decibels([other for _, other, _ in rows])}, AREA's "
        f"{_decibels([one for one, *_ in rows])}."
    )
    if worse:
        words += (
            f" AREA's are worse outside the noise at Δ = {_listed(worse)}: its sums mix twice as many rounds, the new "
            "ones and those that they replace. This is what is left of the paper's claim, as far as this attack goes."
        )
    if better:
        words += f" AREA's are better outside the noise at Δ = {_listed(better)}."
    if even:
        words += f" The difference is inside the noise at Δ = {_listed(even)}."
    return words


def _about_many_images(plan: Plan, found: Found) -> str:
    settings = [setting for setting in single_settings(plan) if setting.model == "logistic"]
    hidden = [each for each in settings if not found.cell(each, "area", "history").has_learnt]
    if not hidden:
        return "With every mini-batch and M, AREA's running sum gives more than a guess."
    words = ", ".join(f"{each.batch_size} and {each.local_steps}" for each in hidden)
    return (
        "**Many images hide each other from this attack.** With logistic regression neither images nor labels from "
        f"AREA's running sum are better than a guess, outside the noise, for these mini-batches and M: {words}."
    )


def _about_the_network(plan: Plan, found: Found) -> str:
    cells = [found.cell(Setting("cnn", *each, 4), "area", "history") for each in plan.cnn]
    each = "; ".join(
        f"{cell.found.psnr_db.mean():.1f} dB, {cell.found.label_percent.mean():.0f} % of the labels (mini-batch "
        f"{cell.setting.batch_size}, M = {cell.setting.local_steps})"
        for cell in cells
        if cell.has_learnt
    )
    return (
        f"**Through a small convolutional network** AREA's running sum gives more than a guess here: {each or 'none'}."
    )


def _chances(pairs: Sequence[tuple[Cell, Cell]]) -> list[float]:
    """p values of the differences in PSNR, corrected."""
    return holm([paired_difference(one.found.psnr_db, other.found.psnr_db).p for one, other in pairs])


def _decibels(cells: Sequence[Cell]) -> str:
    return f"{', '.join(f'{cell.found.psnr_db.mean():.1f}' for cell in cells)} dB"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


# ---------------------------------------------------------------------------------------------------- figures


def single_block(found: Found, setting: Setting) -> Block:
    """What was held in some rounds, and what each observation gives of it."""
    cells = [(NAMES[key], found.cell(setting, *key)) for key in SINGLE]
    title = f"each message: mini-batch {setting.batch_size}, M = {setting.local_steps}"
    return Block(title, _rows(cells))


def summed_block(found: Found, setting: Setting) -> Block:
    """The same of a server step under secure aggregation."""
    cells = [(method_label(method), found.cell(setting, method, "sum")) for method in METHODS]
    title = f"sums of Δ = {setting.updates} updates: mini-batch {setting.batch_size}, M = {setting.local_steps}"
    return Block(title, _rows(cells))


def _rows(cells: Sequence[tuple[str, Cell]]) -> tuple[Row, ...]:
    attacks = cells[0][1].attacks
    held = Row("held", _first([attack.held.images for attack in attacks]))
    others = [Row(label, _first([each.found.partners.images for each in cell.attacks])) for label, cell in cells]
    return (held, *others)


def _first(images: Sequence[Images]) -> Images:
    return np.concatenate(images)[:_SHOWN]


# ---------------------------------------------------------------------------------------------------- page


def network_parameters() -> int:
    """The number of parameters of the small network."""
    from studies.leakage_cnn import small_cnn

    return sum(parameter.numel() for parameter in small_cnn(784, 10).parameters())


def write_page(plan: Plan, found: Found, page: Path) -> None:
    """Draw, and write the page."""
    single = single_settings(plan)
    summed = summed_settings(plan)
    logistic = [setting for setting in single if setting.model == "logistic"]
    logistic_sums = [setting for setting in summed if setting.model == "logistic"]
    cnn = single[len(logistic) :]
    cnn_sums = summed[len(logistic_sums) :]
    shown = [setting for setting in logistic if setting.batch_size * setting.local_steps <= 10]
    shown_sums = [each for each in logistic_sums if (each.batch_size, each.local_steps) == plan.summed[0]]
    columns = [[single_block(found, each) for each in shown], [summed_block(found, each) for each in shown_sums]]
    save(draw_blocks(columns), page.parent / "leakage.png")
    columns = [[single_block(found, each) for each in cnn], [summed_block(found, each) for each in cnn_sums]]
    save(draw_blocks(columns), page.parent / "leakage_cnn.png")
    text = PAGE.format(
        short=short_table(plan, found),
        conclusions=conclusions(plan, found),
        victims=plan.trials * plan.victims,
        clients=plan.clients,
        trials=plan.trials,
        iterations=plan.effort.iterations,
        deep=plan.effort.deep_iterations,
        starts=plan.effort.starts,
        public=PUBLIC,
        cnn_iterations=plan.cnn_effort.iterations,
        cnn_deep=plan.cnn_effort.deep_iterations,
        cnn_victims=plan.trials * plan.cnn_victims,
        most=MOST_IMAGES,
        reduced=REDUCED_IMAGES,
        ceiling=CEILING_DB,
        recovered=RECOVERED,
        facts=fact_table(plan, found),
        sums=sum_table(plan, found),
        single=single_table(found, logistic),
        summed=summed_table(found, logistic_sums),
        parameters=network_parameters(),
        cnn=single_table(found, cnn),
        cnn_summed=summed_table(found, cnn_sums),
    )
    page.write_text(text, encoding="utf-8")
    print(text)


@limited_threads()
def main(plan: Plan, page: Path) -> None:
    """Run, attack, write the page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    show: Show = terminal_bar() if sys.stderr.isatty() else lambda _share, _words: None
    found = run_plan(plan, lambda words: show(None, words))
    show(None, "")
    write_page(plan, found, page)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the page to write; figures go beside it")
    parser.add_argument("--trials", type=int, default=Plan(EXPERIMENT).trials, help="seeds (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    main(replace(Plan(EXPERIMENT), trials=given.trials), given.page)
