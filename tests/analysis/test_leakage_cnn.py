"""The leakage study through a network, and its script, on a tiny setting; needs torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

import study_leakage
import torch
from studies.leakage_cnn import NetworkMisfit, NetworkRound, small_cnn
from studies.leakage_matching import Effort, Unknowns
from studies.leakage_observations import Observation
from studies.leakage_runs import Message
from studies.leakage_trials import Plan


def test_misfit_is_zero_at_the_truth_and_its_derivative_is_right() -> None:
    """One local step on two 4×4 images; the derivative by central differences."""
    generator = np.random.default_rng(0)
    module = small_cnn(16, 3).double()
    sent = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy()
    images = generator.random((2, 16))
    labels = torch.tensor([0, 2])
    loss = torch.nn.functional.cross_entropy(module(torch.tensor(images)), labels)
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    total = 0.1 * torch.cat([slope.reshape(-1) for slope in slopes]).numpy()
    observation = Observation(total, (Message(0, 0, 0, sent, 0.1, sent, 0, sent),), (1,), 1)
    misfit = NetworkMisfit(observation, NetworkRound(module, 3, 1, 2))
    truth = Unknowns(images.reshape(1, 1, 2, 16), 60.0 * np.eye(3)[[0, 2]].reshape(1, 1, 2, 3))
    assert misfit(truth)[0] < 1e-3  # the total variation is left
    at = Unknowns(generator.random((1, 1, 2, 16)), generator.standard_normal((1, 1, 2, 3)))
    along = Unknowns(generator.standard_normal(at.images.shape), generator.standard_normal(at.scores.shape))
    slope = misfit(at)[1]
    ends = [misfit(Unknowns(at.images + h * along.images, at.scores + h * along.scores))[0] for h in (1e-5, -1e-5)]
    expected = (slope.images * along.images).sum() + (slope.scores * along.scores).sum()
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
def test_study_writes_the_same_page_and_figures_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
