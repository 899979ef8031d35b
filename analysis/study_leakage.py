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
from paper.page_tables import bullets, markdown_table
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
    run_plan,
    single_settings,
    summed_settings,
)

from areabench.experiment.labels import method_label
from areabench.progress import write_live
from areabench.results.statistics import SIGNIFICANCE, holm, paired_difference
from areabench.threads import limited_threads
from areabench.views.figures.style import save

EXPERIMENT = Path(__file__).parents[1] / "benchmarks" / "experiments" / "studies" / "leakage.toml"
SINGLE = (("area", "message"), ("area", "history"), ("fedbuff", "message"), ("as-fedavg", "message"))
NAMES = {
    ("area", "message"): "AREA, one message",
    ("area", "history"): "AREA, running sum",
    ("fedbuff", "message"): "FedBuff, one message",
    ("as-fedavg", "message"): "AS-FedAvg, one message",
}
_SHOWN = 8  # images of a row of a figure

PAGE = """\
# What a curious server learns from messages

The paper says that AREA's residuals are less susceptible to gradient inversion. **They are not: a server that keeps
one running sum per client has every pseudo-gradient** ([entry 27](../../../docs/theory-corrections.md)). Secure
aggregation changes that, for every method. `make study-leakage` measures what an honest-but-curious server finds of
the images that clients hold, from AREA's residuals, FedBuff's pseudo-gradients and AS-FedAvg's models, and writes
this page.

{short}
A cell is the mean PSNR of the images that were found, and the share of right labels, each with its 95 % interval over
{victims} victims (bootstrap). Mini-batch 1, M = 1, logistic regression. Who sees *nothing* says the mean image of
public data and its most frequent label.

{conclusions}
![Images held by clients, and what was found of them from messages of three methods](leakage.png)

## How it is measured

Messages come from runs of the simulator with the rules of the package:
[leakage.toml](../../experiments/studies/leakage.toml), MNIST, n = {clients}, {trials} seeds, the same arrivals and
mini-batches for all methods. A wrapper around the rule copies what passes. Victims are drawn by the seed from the
second half of a run; none is its client's first message. FedBuff's server step size is Δ/n, so that an update moves
the model as far as in AREA. AS-FedAvg has no such key: its model is trained further, and images that it
classifies well leave smaller gradients. That is a difference of the models, not of the messages.

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
for several held ones. Held and found images are paired so that the error is least. PSNR is -10 log10 of the mean
squared error, at most {ceiling:.0f} dB.

**A failed attack is no proof of privacy.** These attacks are simple, and have no model of what digits look like. Where
a number is low, a better attack may find more. Where it is high, the image is out.

## Pseudo-gradients from messages alone

The share of all pseudo-gradients with a relative error below {recovered:g}, over all runs with logistic regression, and
the median and the largest error:

{facts}
What one residual gives away are the first messages of the clients.

Under secure aggregation no sum is one of its updates. The median distance of a step's mean from each of its
pseudo-gradients, relative to these, and how many of all x_i the sums of a whole run determine, if it is known who took
part in each step (mini-batch 1, M = 1):

{sums}
A client's x_i in AREA is determined if and only if the client was alone in every step that it has taken part in: all
Δ updates came from it. A protocol for secure aggregation has to refuse such a step.

## One client: mini-batch and local steps

Logistic regression, {victims} victims, the server steps after 4 updates:

{single}
## Secure aggregation

Logistic regression, {victims} server steps. The difference is paired by server step; p values are of a permutation
test, corrected by Holm's method for all rows of the table:

{summed}
## A small convolutional network

Two convolutions and a linear layer, {parameters:,} parameters, by matching: {cnn_iterations} iterations, {cnn_deep} for
ten local steps, one start; {cnn_victims} victims. M = 50 is left out: matching differentiates twice through every step.

{cnn}
Under secure aggregation:

{cnn_summed}
![Images held by clients, and what was found of them through a convolutional network](leakage_cnn.png)
"""


# ---------------------------------------------------------------------------------------------------- tables


def short_table(plan: Plan, found: Found) -> str:
    """Who learns what: mini-batch 1, one local step."""
    first = Setting("logistic", plan.batches[0], plan.local_steps[0], 4)
    heading = ["the server sees", *map(method_label, METHODS)]
    each = [found.cell(first, method, "message") for method in METHODS]
    rows = [["one message", *(cell.words for cell in each)]]
    history = [found.cell(first, "area", "history").words, "the same", "the same"]
    rows.append(["all messages of a client", *history])
    for updates in plan.updates:
        setting = Setting("logistic", *plan.summed[0], updates)
        rows.append([f"sums of {updates} updates", *(found.cell(setting, method, "sum").words for method in METHODS)])
    rows.append(["nothing", *(cell.guessed_words for cell in each)])
    return markdown_table(heading, rows)


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
        setting, words = Setting("logistic", *plan.summed[0], updates), []
        for method in METHODS:
            fact = next(each for each in found.facts if (each.setting, each.method) == (setting, method))
            words.append(f"{np.median(fact.errors):.2f}; {fact.determined} of {len(fact.errors):,}")
        rows.append([f"{updates}", *words])
    return markdown_table(["Δ", *map(method_label, METHODS)], rows)


def single_table(found: Found, settings: Sequence[Setting]) -> str:
    """One row per mini-batch and M."""
    rows = []
    for setting in settings:
        cells = [found.cell(setting, *key) for key in SINGLE]
        words = [cells[0].guessed_words, *(cell.words for cell in cells)]
        rows.append([f"{setting.batch_size}", f"{setting.local_steps}", *words])
    return markdown_table(["mini-batch", "M", "knows nothing", *NAMES.values()], rows)


def summed_table(found: Found, settings: Sequence[Setting]) -> str:
    """One row per mini-batch, M and Delta, with the difference of AREA and FedBuff."""
    rows, differences = [], []
    for setting in settings:
        cells = [found.cell(setting, method, "sum") for method in METHODS]
        differences.append(paired_difference(cells[0].psnr_db, cells[1].psnr_db))
        words = [cells[0].guessed_words, *(cell.words for cell in cells)]
        rows.append([f"{setting.batch_size}", f"{setting.local_steps}", f"{setting.updates}", *words])
    for row, each, p in zip(rows, differences, holm([each.p for each in differences]), strict=True):
        row.append(f"{each.mean:+.1f} dB ({each.low:+.1f} to {each.high:+.1f}), p = {p:.2g}")
    heading = ["mini-batch", "M", "Δ", "knows nothing", *map(method_label, METHODS), "AREA - FedBuff (95 %)"]
    return markdown_table(heading, rows)


# ---------------------------------------------------------------------------------------------------- sentences


def conclusions(plan: Plan, found: Found) -> str:
    """What the numbers say, and no more."""
    first = Setting("logistic", plan.batches[0], plan.local_steps[0], 4)
    known, plain = found.cell(first, "area", "history"), found.cell(first, "fedbuff", "message")
    alone = found.cell(first, "area", "message")
    every = [fact.errors for fact in found.facts if (fact.method, fact.view) == ("area", "history")]
    errors = np.concatenate(every)
    sentences = [
        f"**AREA with a running sum leaks what FedBuff leaks.** {100 * (errors < RECOVERED).mean():.1f} % of "
        f"{len(errors):,} pseudo-gradients are recovered, with a relative error of at most {errors.max():.0e}. The "
        f"images found are {_compared(known, plain)} FedBuff's.",
        f"**One residual alone hides little.** Without any memory of the client the images are "
        f"{_compared(alone, plain)} FedBuff's; {alone.label_percent.mean():.0f} % of the labels are right. A client's "
        "first message hides nothing.",
    ]
    return bullets([*sentences, _about_sums(plan, found)])


def _about_sums(plan: Plan, found: Found) -> str:
    """What secure aggregation changes, and where the methods differ outside the noise."""
    settings = [setting for setting in summed_settings(plan) if setting.model == "logistic"]
    pairs = [(found.cell(each, "area", "sum"), found.cell(each, "fedbuff", "sum")) for each in settings]
    differences = [paired_difference(one.psnr_db, other.psnr_db) for one, other in pairs]
    chances = holm([each.p for each in differences])
    rows = [row for row in zip(settings, differences, chances, strict=True) if _varied(row[0]) == plan.summed[0]]
    worse = [f"{setting.updates}" for setting, each, p in rows if p < SIGNIFICANCE and each.mean < 0]
    better = [f"{setting.updates}" for setting, each, p in rows if p < SIGNIFICANCE and each.mean > 0]
    even = [f"{setting.updates}" for setting, _, p in rows if not p < SIGNIFICANCE]
    ends = [found.cell(rows[place][0], "fedbuff", "sum").psnr_db.mean() for place in (0, -1)]
    guessed = np.mean([attack.guessed.psnr_db for attack in pairs[0][0].attacks])
    words = (
        f"**Secure aggregation hinders the attack, for every method.** FedBuff's images have {ends[0]:.1f} dB in sums "
        f"of {rows[0][0].updates} updates and {ends[1]:.1f} dB in sums of {rows[-1][0].updates}; the mean image has "
        f"{guessed:.1f} dB."
    )
    if worse:
        words += (
            f" The attack finds less in AREA's sums than in FedBuff's at Δ = {', '.join(worse)}: they mix twice as "
            "many rounds, the new ones and those that they replace. This is what is left of the paper's claim."
        )
    if better:
        words += f" It finds more in AREA's sums at Δ = {', '.join(better)}."
    if even:
        words += f" The difference of AREA and FedBuff is inside the noise at Δ = {', '.join(even)}."
    return words


def _varied(setting: Setting) -> tuple[int, int]:
    return setting.batch_size, setting.local_steps


def _compared(one: Cell, other: Cell) -> str:
    """How much better or worse the images of one cell are, if that is outside the noise."""
    each = paired_difference(one.psnr_db, other.psnr_db)
    if not each.p < SIGNIFICANCE:
        return f"as good as (difference {each.mean:+.1f} dB, {each.low:+.1f} to {each.high:+.1f})"
    word = "better" if each.mean > 0 else "worse"
    return f"{abs(each.mean):.1f} dB {word} ({each.low:+.1f} to {each.high:+.1f}) than"


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
    single, summed = single_settings(plan), summed_settings(plan)
    logistic = [setting for setting in single if setting.model == "logistic"]
    logistic_sums = [setting for setting in summed if setting.model == "logistic"]
    cnn, cnn_sums = single[len(logistic) :], summed[len(logistic_sums) :]
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
    show = write_live if sys.stderr.isatty() else lambda _words: None
    found = run_plan(plan, show)
    show("")
    write_page(plan, found, page)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the page to write; figures go beside it")
    parser.add_argument("--trials", type=int, default=Plan(EXPERIMENT).trials, help="seeds (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    main(replace(Plan(EXPERIMENT), trials=given.trials), given.page)
