"""Torch modules as flat vectors: gradients, views, replay, evaluation, and every refusal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Literal

import numpy as np
import pytest
from tests.support.samples import CLASSES, FEATURES, TRAIN, blobs, parts

from areabench.errors import UserError
from areabench.problems.examples import mlp
from areabench.problems.logistic import Logistic, LogisticProblem
from areabench.problems.minibatches import Minibatches
from areabench.problems.torch_module import TorchModule

pytest.importorskip("torch")  # what follows is imported only where torch is installed
import torch  # noqa: E402
from torch import nn  # noqa: E402

from areabench.problems import torch_flat
from areabench.problems.torch_flat import TorchProblem

MLP = "areabench.problems.examples:mlp"


def linear(features: int, classes: int) -> nn.Module:
    """The model of logistic regression: no bias."""
    return nn.Linear(features, classes, bias=False)


def dropout(features: int, classes: int) -> nn.Module:
    """A model that draws random numbers while it is trained."""
    return nn.Sequential(nn.Linear(features, 8), nn.Dropout(0.5), nn.Linear(8, classes))


def batch_norm(features: int, classes: int) -> nn.Module:
    """A model with running statistics, which are buffers."""
    return nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, classes))


def tied(features: int, classes: int) -> nn.Module:
    """One layer used twice, then a frozen one and a trained one."""
    layer, frozen = nn.Linear(features, features), nn.Linear(features, features)
    frozen.requires_grad_(False)
    return nn.Sequential(layer, layer, frozen, nn.Linear(features, classes))


def lazy(features: int, classes: int) -> nn.Module:
    """A layer that learns its width from the first samples."""
    return nn.LazyLinear(classes)


def double(features: int, classes: int) -> nn.Module:
    """Parameters in float64."""
    return nn.Linear(features, classes).double()


def parameterless(features: int, classes: int) -> nn.Module:
    """Nothing to train."""
    return nn.Identity()


def frozen(features: int, classes: int) -> nn.Module:
    """Parameters, none of them trained."""
    return nn.Linear(features, classes).requires_grad_(False)


def number(features: int, classes: int) -> int:
    """No module at all."""
    return features * classes


def narrow(features: int, classes: int) -> nn.Module:
    """A model for other data: it takes one feature more."""
    return nn.Linear(features + 1, classes)


def one_class_more(features: int, classes: int) -> nn.Module:
    """A model that gives one score too many."""
    return nn.Linear(features, classes + 1)


def failing(features: int, classes: int) -> nn.Module:
    """A factory that raises, in two lines."""
    raise ValueError("first line\nsecond line")


def loosening(features: int, classes: int) -> nn.Module:
    """A layer that discards its gradients at every call."""
    layer = nn.Linear(features, classes)
    layer.register_forward_pre_hook(lambda module, _: module.zero_grad(set_to_none=True))
    return layer


def vector_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One value a sample instead of their mean."""
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


NOT_CALLABLE = 3


@pytest.fixture(autouse=True)
def zoo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this file importable as `zoo`, and leave torch's global switches as they were."""
    module = ModuleType("zoo")
    vars(module).update(globals())
    monkeypatch.setitem(sys.modules, "zoo", module)
    mode = torch.get_deterministic_debug_mode()
    yield
    torch.set_deterministic_debug_mode(mode)


def problem(settings: TorchModule, local_steps: int = 1, seed: int = 5) -> TorchProblem:
    """The two clients above."""
    return TorchProblem(settings, blobs(), parts(), local_steps, seed)


def refusal(settings: TorchModule) -> str:
    """The one line with which a problem is refused."""
    with pytest.raises(UserError) as caught:
        problem(settings)
    line = str(caught.value)
    assert "\n" not in line
    return line


# ---------------------------------------------------------------------------------------------------- training


def test_step_matches_autograd_on_a_plain_copy() -> None:
    settings = TorchModule(module=MLP, regularisation=0.25, batch_size=8, weighting="exact")
    flat_problem, data = problem(settings), blobs()
    start = flat_problem.start()
    plain = mlp(FEATURES, CLASSES)
    nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), plain.parameters())
    rows = Minibatches(5, 1, parts()[1], 1, 8).next_round()[0]
    inputs = torch.from_numpy(data.train_features[rows] / np.float32(255))
    nn.functional.cross_entropy(plain(inputs), torch.from_numpy(data.train_labels[rows])).backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in plain.parameters()]).numpy()
    expected = start - 0.5 * 1.5 * (gradient + 0.25 * start)  # alpha = 0.5, weight = 2·(30/40)
    np.testing.assert_allclose(flat_problem.local(1).descend(start, 0.5), expected, atol=1e-6)


def test_gradient_matches_finite_differences() -> None:
    flat = problem(TorchModule(module=MLP)).flat
    inputs = torch.rand(8, FEATURES, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8) % CLASSES
    flat.differentiate(nn.functional.cross_entropy, inputs, labels)
    analytic, width = flat.gradient.clone(), 1e-2
    for index in (0, 100, 400, len(analytic) - 1):
        values = []
        for sign in (1, -1):
            flat.values[index] += sign * width
            values.append(nn.functional.cross_entropy(flat.module(inputs), labels).item())
            flat.values[index] -= sign * width
        assert abs((values[0] - values[1]) / (2 * width) - float(analytic[index])) < 1e-4


@pytest.mark.parametrize("weighting", ["share", "exact"])
def test_linear_module_follows_logistic_regression(weighting: Literal["share", "exact"]) -> None:
    settings = Logistic(regularisation=0.01, batch_size=8, weighting=weighting)
    logreg = LogisticProblem(settings, blobs(), parts(), 5, 5)
    same = TorchModule(module="zoo:linear", regularisation=0.01, batch_size=8, weighting=weighting)
    module = problem(same, local_steps=5)
    ours, theirs = module.local(1), logreg.local(1)
    one = other = start = logreg.start()
    for _ in range(6):
        one, other = ours.descend(one, 0.5), theirs.descend(other, 0.5)
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.abs(one - start).max() > 0.1
    mine, reference = module.evaluate([start, one]), logreg.evaluate([start, one])
    np.testing.assert_allclose(mine.train_loss, reference.train_loss, rtol=1e-5)
    np.testing.assert_array_equal(mine.test_accuracy, reference.test_accuracy)


def test_parameters_and_gradients_stay_views() -> None:
    module = problem(TorchModule(module=MLP, batch_size=8), local_steps=3)
    flat = module.flat
    module.local(0).descend(module.start(), 0.5)
    module.evaluate([module.start()])
    module.local(1).descend(module.start(), 0.5)
    values, gradient = flat.values.data_ptr(), flat.gradient.data_ptr()
    for parameter in flat.module.parameters():
        assert (parameter.data_ptr(), parameter.grad.data_ptr()) == (values, gradient)
        values, gradient = values + 4 * parameter.numel(), gradient + 4 * parameter.numel()
    assert flat.is_flat()
    assert flat.array.ctypes.data == flat.values.data_ptr()


def test_a_gradient_that_is_not_a_view_is_detected() -> None:
    module = problem(TorchModule(module="zoo:loosening", batch_size=8))
    with pytest.raises(UserError, match="Linear replaced a parameter or a gradient"):
        module.local(0).descend(module.start(), 0.5)


def test_a_parameter_that_is_not_a_view_is_detected() -> None:
    flat = problem(TorchModule(module=MLP)).flat
    first = next(flat.module.parameters())
    first.data = first.data.clone()
    assert not flat.is_flat()


def test_tied_parameters_are_sent_once_and_frozen_ones_never() -> None:
    module = problem(TorchModule(module="zoo:tied", batch_size=8))
    assert module.dimension == (FEATURES + 1) * FEATURES + (FEATURES + 1) * CLASSES
    assert not np.array_equal(module.local(0).descend(module.start(), 0.5), module.start())


def test_lazy_layers_are_sized_by_the_data() -> None:
    assert problem(TorchModule(module="zoo:lazy")).dimension == (FEATURES + 1) * CLASSES


def test_example_has_64_hidden_units() -> None:
    module = problem(TorchModule(module=MLP))
    assert module.dimension == (FEATURES + 1) * 64 + 65 * CLASSES
    assert module.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- randomness


def test_same_seed_same_start() -> None:
    settings = TorchModule(module=MLP)
    torch.manual_seed(1)
    first = problem(settings).start()
    torch.manual_seed(2)
    np.testing.assert_array_equal(problem(settings).start(), first)
    assert not np.array_equal(problem(settings, seed=6).start(), first)


def test_torch_is_deterministic() -> None:
    problem(TorchModule(module=MLP))
    assert torch.are_deterministic_algorithms_enabled()


def test_torch_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    module = problem(TorchModule(module="zoo:dropout", batch_size=8))
    module.local(0).descend(module.start(), 0.5)
    module.evaluate([module.start()])
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_does_not_depend_on_the_order_of_arrivals() -> None:
    def rounds(order: tuple[int, ...]) -> dict[tuple[int, int], bytes]:
        module = problem(TorchModule(module="zoo:dropout", batch_size=8), local_steps=2)
        clients, start = [module.local(0), module.local(1)], module.start()
        seen: dict[tuple[int, int], bytes] = {}
        for client in order:
            count = sum(1 for known, _ in seen if known == client)
            seen[client, count] = clients[client].descend(start, 0.5).tobytes()
        return seen

    first = rounds((0, 1, 0, 1))
    assert rounds((1, 1, 0, 0)) == first
    assert len(set(first.values())) == 4


def test_dropout_draws_again_in_each_round() -> None:
    module = problem(TorchModule(module="zoo:dropout"))
    one_row = TorchProblem(module.settings, blobs(), [np.array([0])], 1, 5)
    client, start = one_row.local(0), one_row.start()  # one row: every mini-batch is the same
    assert len({client.descend(start, 0.5).tobytes() for _ in range(4)}) == 4


def random_layers(local_steps: int) -> TorchProblem:
    """A problem whose every step draws random numbers."""
    return problem(TorchModule(module="zoo:dropout", batch_size=8), local_steps)


def test_dropout_in_whole_rounds_draws_what_it_drew_in_earlier_versions() -> None:
    module = random_layers(local_steps=2)
    client, model = module.local(1), module.start()
    for _ in range(3):
        model = client.descend(model, 0.5)
    np.testing.assert_allclose(model[:3], [-0.331262201, 0.00721835438, -0.294754952], rtol=1e-5)


def test_dropout_of_two_rounds_at_once_is_that_of_two_rounds() -> None:
    module = random_layers(local_steps=2)
    apart, at_once, start = module.local(0), module.local(0), module.start()
    second = apart.descend(apart.descend(start, 0.5), 0.5)
    np.testing.assert_array_equal(at_once.descend(start, 0.5, 4), second)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_dropout_after_skipped_steps(steps: int) -> None:
    module = random_layers(local_steps=3)
    late, whole, start = module.local(0), module.local(0), module.start()
    late.skip(steps)
    whole.descend(start, 0.5, steps)
    for _ in range(3):
        assert late.descend(start, 0.5, 2).tobytes() == whole.descend(start, 0.5, 2).tobytes()
        assert late.gradient(start).tobytes() == whole.gradient(start).tobytes()


def test_dropout_draws_again_in_each_step_of_a_round() -> None:
    one_row = TorchProblem(TorchModule(module="zoo:dropout"), blobs(), [np.array([0])], 4, 5)
    client, start = one_row.local(0), one_row.start()  # one row: every mini-batch is the same
    assert len({client.gradient(start).tobytes() for _ in range(4)}) == 4


# ---------------------------------------------------------------------------------------------------- evaluation


def test_evaluation_matches_plain_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_flat, "_ROWS_AT_ONCE", 7)  # several chunks, the last of them short
    data, module = blobs(), problem(TorchModule(module="zoo:linear", regularisation=0.125))
    models = [module.start() * np.float32(factor) for factor in (1, -3)]
    metrics = module.evaluate(models)
    for index, model in enumerate(models):
        weights = model.astype(np.float64).reshape(CLASSES, FEATURES)
        scores = data.train_features / 255 @ weights.T
        entropies = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(TRAIN), data.train_labels]
        loss = entropies.mean() + 0.0625 * (weights**2).sum()
        hits = (data.test_features @ weights.T).argmax(axis=1) == data.test_labels
        np.testing.assert_allclose(metrics.train_loss[index], loss, rtol=1e-6)
        np.testing.assert_allclose(metrics.test_accuracy[index], 100 * hits.mean(), rtol=1e-12)
    assert np.isnan(metrics.squared_distance).all()


def test_evaluation_switches_dropout_off_and_on_again() -> None:
    module = problem(TorchModule(module="zoo:dropout"))
    losses = [module.evaluate([module.start()]).train_loss[0] for _ in range(2)]
    assert losses[0] == losses[1]
    assert module.flat.module.training


def test_evaluation_does_not_disturb_training() -> None:
    module = problem(TorchModule(module=MLP, batch_size=8))
    start = module.start()
    expected = module.local(0).descend(start, 0.5)
    module.evaluate([start * 2])
    np.testing.assert_array_equal(module.local(0).descend(start, 0.5), expected)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("path", ["zoo", "zoo:", ":linear", ""])
def test_a_path_without_both_halves_is_refused(path: str) -> None:
    assert "write `package.module:function`" in refusal(TorchModule(module=path))


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("no_such_package:model", "ModuleNotFoundError"),
        ("zoo:absent", "lacks 'absent'"),
        ("zoo:NOT_CALLABLE", "holds no callable 'NOT_CALLABLE'"),
        ("zoo:number", "returned int instead of a torch.nn.Module"),
        ("zoo:parameterless", "no trainable parameter"),
        ("zoo:frozen", "no trainable parameter"),
        ("zoo:double", "'weight' is torch.float64"),
        ("zoo:batch_norm", "buffer '0.running_mean'"),
        ("zoo:failing", "ValueError: first line second line"),
        ("zoo:narrow", "6 features and 3 classes"),
        ("zoo:one_class_more", "(2, 4) for 2 samples of 6 features and 3 classes"),
    ],
)
def test_unfit_modules_are_refused(path: str, fault: str) -> None:
    line = refusal(TorchModule(module=path))
    assert fault in line
    assert line.startswith(f"problem.module = {path!r}")
    assert ";" in line  # the remedy


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("no_such_package:loss", "ModuleNotFoundError"),
        ("torch.nn.functional:no_such_loss", "lacks 'no_such_loss'"),
        ("zoo:NOT_CALLABLE", "holds no callable"),
        ("zoo:vector_loss", "scalar mean"),
    ],
)
def test_unfit_losses_are_refused(path: str, fault: str) -> None:
    line = refusal(TorchModule(module=MLP, loss=path))
    assert fault in line
    assert line.startswith(f"problem.loss = {path!r}")


# ---------------------------------------------------------------------------------------------------- imports


def test_examples_import_without_torch() -> None:
    program = "import sys, areabench.problems.examples; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_missing_torch_is_reported_in_one_line() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from areabench.errors import UserError\n"
        "try:\n    import areabench.problems.torch_flat\n"
        "except UserError as error:\n    sys.exit(0 if 'install torch' in str(error) else 3)\n"
        "sys.exit(4)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
