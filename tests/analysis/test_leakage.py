"""The leakage study on tiny inputs: what messages give away, the attacks of logistic regression, and the scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies.leakage_logistic import LogisticMisfit, LogisticRound, closed_form, label_counts, match_images
from studies.leakage_matching import Effort, FirstGuess, Form, Unknowns, form_of, softmax
from studies.leakage_observations import (
    Observation,
    determined,
    distances_of_mean,
    from_histories,
    from_message,
    from_sum,
    relative_errors,
)
from studies.leakage_runs import Message, RecordedRun, record
from studies.leakage_scores import Picture, Score, apportion, class_means, guess, psnr_db, score
from studies.leakage_trials import Attack, Cell, Plan, Setting

from areabench.api import read_experiment

TINY = {
    "clients": {"count": 3, "local_steps": 2},
    "problem": {"name": "logistic", "batch_size": 2, "weighting": "exact"},
    "data": {"name": "synthetic", "train_samples": 30, "test_samples": 10, "features": 4, "classes": 3},
    "split": "iid",
    "aggregation": {"name": "updates", "updates": 2},
    "stop": {"iterations": 18},
    "record": {"snapshots": "none", "events": False},
}
METHODS = [
    {"name": "area", "step_size": 0.1},
    {"name": "fedbuff", "step_size": 0.1, "server_step_size": 1.0},
    {"name": "as-fedavg", "step_size": 0.1},
]


def recorded(method: dict[str, object], **overrides: object) -> RecordedRun:
    return record(read_experiment(TINY, method=method, **overrides), Path())


def message(sent: list[float], rate: float = 1.0, payload: list[float] | None = None) -> Message:
    given = np.array(sent)
    return Message(0, 0, 0, given, rate, np.array(payload or sent), 0, given)


# ---------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method["name"]))
def test_recording_does_not_change_the_run(method: dict[str, object]) -> None:
    run = recorded(method)
    assert len(run.messages) == 12
    assert run.steps == 6
    for number, sent in enumerate(run.messages):
        assert (sent.number, sent.step) == (number, number // 2)
        batches = run.held(sent)
        local = run.scenario.problem.local(sent.client)
        local.skip(run.local_steps * sent.round)
        np.testing.assert_array_equal(local.descend(sent.sent, 0.1), sent.local)
        assert batches.shape == (2, 2)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method["name"]))
def test_histories_recover_every_pseudo_gradient(method: dict[str, object]) -> None:
    run = recorded(method)
    assert relative_errors(run, list(from_histories(run))).max() < 1e-5


def test_one_residual_is_a_pseudo_gradient_in_the_first_round_only() -> None:
    run = recorded(METHODS[0])
    errors = relative_errors(run, [from_message("area", each) for each in run.messages])
    first = np.array([each.round == 0 for each in run.messages])
    assert errors[first].max() < 1e-5
    assert errors[~first].min() > 0.1


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method["name"]))
def test_sums_are_signed_sums_of_pseudo_gradients(method: dict[str, object]) -> None:
    run = recorded(method)
    for step in range(run.steps):
        found = from_sum(run, step)
        pairs = zip(found.signs, found.rounds, strict=True)
        expected = np.sum([sign * each.pseudo_gradient for sign, each in pairs], axis=0)
        np.testing.assert_allclose(found.total, expected, atol=1e-6)
    assert distances_of_mean(run).min() > 0.01  # a sum is none of its updates


def test_sums_determine_a_client_that_is_alone_in_its_steps() -> None:
    alone = recorded(METHODS[0], clients={"count": 1})
    found = from_sum(alone, 1)  # AREA's sum has only the last of a client's updates
    assert ([each.round for each in found.rounds], found.signs) == ([3, 1], (1, -1))
    np.testing.assert_array_equal(determined(alone), [False, True] * 6)  # the last update of each step
    assert not determined(recorded(METHODS[1], clients={"count": 1})).any()
    assert not determined(recorded(METHODS[0])).any()


# ---------------------------------------------------------------------------------------------------- attacks


def test_closed_form_recovers_the_image_of_a_batch_of_one() -> None:
    model = np.array([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]])
    image = np.array([0.25, 1.0, 0.5])
    probabilities = softmax(model @ image)
    gradient = np.outer(probabilities - np.array([0.0, 1.0]), image) + 0.01 * model
    observation = Observation(0.1 * gradient.ravel(), (message(model.ravel().tolist(), 0.1),), (1,), 1)
    found = closed_form(observation, LogisticRound(2, 0.01, 1, 1))
    assert found.labels.tolist() == [1]
    np.testing.assert_allclose(found.images[0], image, atol=1e-4)
    nothing = Observation(np.zeros(6), (message([0.0] * 6),), (1,), 1)
    assert closed_form(nothing, LogisticRound(2, 0.0, 1, 1)).images.tolist() == [[0.0, 0.0, 0.0]]


def check_derivative(misfit: Callable[[Unknowns], tuple[float, Unknowns]], at: Unknowns, along: Unknowns) -> None:
    """By central differences."""
    slope = misfit(at)[1]
    ends = [misfit(Unknowns(at.images + h * along.images, at.scores + h * along.scores))[0] for h in (1e-5, -1e-5)]
    expected = (slope.images * along.images).sum() + (slope.scores * along.scores).sum()
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(float(expected), rel=1e-5)


def drawn(generator: np.random.Generator, *shape: int, classes: int = 3) -> list[Unknowns]:
    """A place and a direction, for images of this shape."""
    return [
        Unknowns(images, generator.standard_normal((*shape[:-1], classes)))
        for images in (generator.random(shape), generator.standard_normal(shape))
    ]


@pytest.mark.parametrize("steps", [1, 2])
def test_derivative_of_the_misfit(steps: int) -> None:
    """By central differences, with two local steps that have own images or share them, and a negative round."""
    generator = np.random.default_rng(0)
    rounds = tuple(message(generator.standard_normal(12).tolist(), rate) for rate in (0.5, 0.7))
    misfit = LogisticMisfit(Observation(generator.standard_normal(12), rounds, (1, -1), 1), LogisticRound(3, 0.1, 2, 2))
    check_derivative(misfit, *drawn(generator, 2, steps, 2, 4))


def test_misfit_of_a_network_is_zero_at_the_truth() -> None:
    """One local step on two 4×4 images."""
    torch = pytest.importorskip("torch")
    from studies.leakage_cnn import NetworkMisfit, NetworkRound, small_cnn

    generator = np.random.default_rng(0)
    module = small_cnn(16, 3).double()
    sent = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy()
    images = generator.random((2, 16))
    loss = torch.nn.functional.cross_entropy(module(torch.tensor(images)), torch.tensor([0, 2]))
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    total = 0.1 * torch.cat([slope.reshape(-1) for slope in slopes]).numpy()
    observation = Observation(total, (Message(0, 0, 0, sent, 0.1, sent, 0, sent),), (1,), 1)
    misfit = NetworkMisfit(observation, NetworkRound(module, 3, 1, 2))
    truth = Unknowns(images.reshape(1, 1, 2, 16), 60.0 * np.eye(3)[[0, 2]].reshape(1, 1, 2, 3))
    assert misfit(truth)[0] < 1e-3  # the total variation is left
    check_derivative(misfit, *drawn(generator, 1, 1, 2, 16))


def test_matching_finds_two_images_of_a_batch() -> None:
    generator = np.random.default_rng(1)
    model = 0.1 * generator.standard_normal((4, 6))
    known = LogisticRound(4, 0.0, 1, 2)
    held = Picture(generator.random((2, 6)), np.array([0, 2]))
    gradient = (softmax(held.images @ model.T) - np.eye(4)[held.labels]).T @ held.images / 2
    observation = Observation(gradient.ravel(), (message(model.ravel().tolist()),), (1,), 1)
    public = Picture(np.full((4, 6), 0.5), np.arange(4))
    found = match_images(observation, known, public, generator, Effort(iterations=500))
    result = score(found, held)
    assert result.label_share == 1.0
    assert result.psnr_db > 25


def test_label_counts_of_images_that_look_like_public_ones() -> None:
    """Four images of equal brightness, labels 0, 0, 2 and 2, model zero: row sums are brightness·(1/3 - share)."""
    public = Picture(np.full((3, 4), 0.5), np.arange(3))
    row_sums = 2.0 * (1 / 3 - np.array([0.5, 0.0, 0.5]))
    total = np.repeat(row_sums[:, None] / 4, 4, axis=1).ravel()
    observation = Observation(1e-9 * total, (message([0.0] * 12, 1e-9),), (1,), 1)  # the model hardly moves
    found = label_counts(observation, LogisticRound(3, 0.0, 1, 4), public)
    assert found == pytest.approx([2.0, 0.0, 2.0], abs=1e-6)


def test_form_is_reduced_where_there_are_many_images() -> None:
    assert form_of(2, 10, 1) == Form(2, 10, 1, reduced=False)
    assert form_of(1, 50, 32) == Form(1, 1, 16, reduced=True)
    assert form_of(32, 10, 1) == Form(32, 1, 1, reduced=True)


def test_labels_of_the_first_guess_follow_the_counts_and_signs() -> None:
    counts = np.array([2.0, 0.0, -2.0])
    guessed = FirstGuess(Form(2, 1, 2, reduced=False), (1, -1), np.full(4, 0.5), counts)
    start = guessed.draw(np.random.default_rng(0))
    assert start.scores.argmax(axis=-1).reshape(2, 2).tolist() == [[0, 0], [2, 2]]
    assert start.images.min() >= 0
    assert start.images.max() <= 1


def test_labels_are_apportioned_by_greatest_remainders() -> None:
    assert apportion(np.array([0.5, 0.1, 0.4]), 3).tolist() == [0, 0, 2]  # 1.5, 0.3 and 1.2 of 3
    assert apportion(np.array([0.25, 0.75]), 4).tolist() == [0, 1, 1, 1]


# ---------------------------------------------------------------------------------------------------- scores


def test_psnr_by_hand() -> None:
    held = np.zeros((2, 4))
    found = np.array([[0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.0, 0.2]])
    assert psnr_db(found, held) == pytest.approx([20.0, 20.0])  # mean squares of 0.01
    assert psnr_db(np.ones((1, 4)), np.zeros((1, 4))) == pytest.approx([0.0])
    assert psnr_db(held, held) == pytest.approx([60.0, 60.0])  # the ceiling


def test_score_pairs_images_in_the_best_way() -> None:
    held = Picture(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([3, 7]))
    found = Picture(np.array([[0.0, 0.9], [0.9, 0.0]]), np.array([7, 1]))
    result = score(found, held)
    assert result.partners.images.tolist() == [[0.9, 0.0], [0.0, 0.9]]
    assert result.psnr_db == pytest.approx(-10 * math.log10(0.005))
    assert result.label_share == 0.5


def test_fewer_found_images_stand_for_several_held_ones() -> None:
    held = Picture(np.array([[1.0], [0.0], [0.9], [0.1]]), np.array([1, 0, 1, 0]))
    result = score(Picture(np.array([[0.0], [1.0]]), np.array([0, 1])), held)
    assert result.partners.images.ravel().tolist() == [1.0, 0.0, 1.0, 0.0]
    assert result.label_share == 1.0


def test_guesses_are_mean_images_of_all_or_of_each_class() -> None:
    public = Picture(np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 0.0]]), np.array([1, 1, 0]))
    found = guess(public)
    assert (found.images.tolist(), found.labels.tolist()) == ([[0.5, pytest.approx(2 / 3)]], [1])
    found = class_means(public, 3)
    assert (found.images.tolist(), found.labels.tolist()) == ([[1.0, 0.0], [0.25, 1.0], [0.25, 1.0]], [0, 1, 1])


@pytest.mark.parametrize(
    ("found_db", "found_share", "learnt"), [(20.0, 0.1, True), (11.0, 1.0, True), (13.0, 0.6, False)]
)
def test_something_is_learnt_where_images_or_labels_are_better_than_both_guesses(
    found_db: float, found_share: float, learnt: bool
) -> None:
    held = Picture(np.zeros((1, 1)), np.array([0]))
    mean = Score(12.0, 0.1, held)
    classes = Score(13.0, 0.6, held)
    attack = Attack(held, Score(found_db, found_share, held), mean, classes)
    assert Cell(Setting("logistic", 1, 1, 4), "area", "sum", (attack,) * 8).has_learnt == learnt


def test_pseudo_gradient_is_what_was_sent_minus_what_was_computed() -> None:
    moved = replace(message([1.0, 2.0]), local=np.array([0.5, 3.0]))
    np.testing.assert_array_equal(moved.pseudo_gradient, [0.5, -1.0])


@pytest.mark.slow
def test_study_writes_the_same_page_and_figures_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    import study_leakage

    plan = Plan(
        study_leakage.EXPERIMENT, trials=1, victims=2, effort=Effort(3, 3), cnn_effort=Effort(2, 2), batches=(1, 4),
        local_steps=(1, 2), updates=(2,), summed=((1, 1),), cnn=((1, 1),), cnn_updates=(2,), clients=4, rounds=3,
    )  # fmt: skip
    for folder in ("first", "second"):
        study_leakage.main(plan, tmp_path / folder / "LEAKAGE.md")
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert files == ["LEAKAGE.md", "leakage.png", "leakage_cnn.png"]
    for name in files:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert "| AREA, running sum | 2 | 100.0 % of 24 |" in capsys.readouterr().out
