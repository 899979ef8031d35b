"""Torch modules as flat vectors: views, random layers, evaluation, and every refusal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.support.samples import CLASSES, FEATURES, blobs, parts

from areabench.errors import UserError
from areabench.problems.logistic import Logistic, LogisticProblem
from areabench.problems.torch_module import TorchModule

pytest.importorskip("torch")  # what follows is imported only where torch is installed
import torch  # noqa: E402
from torch import nn  # noqa: E402

from areabench.problems.torch_flat import TorchProblem  # noqa: E402

MLP = "areabench.problems.examples:mlp"


def linear(features: int, classes: int) -> nn.Module:
    """The model of logistic regression: no bias."""
    return nn.Linear(features, classes, bias=False)


def tied(features: int, classes: int) -> nn.Module:
    """One layer used twice, then a frozen one and a trained one."""
    layer = nn.Linear(features, features)
    return nn.Sequential(layer, layer, frozen(features, features), nn.Linear(features, classes))


def frozen(features: int, classes: int) -> nn.Module:
    """Parameters, none of them trained."""
    return nn.Linear(features, classes).requires_grad_(False)


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


ZOO: dict[str, Any] = {
    "linear": linear,
    "tied": tied,
    "frozen": frozen,
    "failing": failing,
    "loosening": loosening,
    "vector_loss": vector_loss,
    "dropout": lambda features, classes: nn.Sequential(nn.Linear(features, 8), nn.Dropout(0.5), nn.Linear(8, classes)),
    "batch_norm": lambda features, classes: nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, classes)),
    "lazy": lambda features, classes: nn.LazyLinear(classes),
    "double": lambda features, classes: nn.Linear(features, classes).double(),
    "parameterless": lambda features, classes: nn.Identity(),
    "number": lambda features, classes: features * classes,
    "narrow": lambda features, classes: nn.Linear(features + 1, classes),
    "one_class_more": lambda features, classes: nn.Linear(features, classes + 1),
    "NOT_CALLABLE": 3,
}


@pytest.fixture(autouse=True)
def zoo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make these importable from `zoo`, and leave torch's global switches as they were."""
    module = ModuleType("zoo")
    vars(module).update(ZOO)
    monkeypatch.setitem(sys.modules, "zoo", module)
    mode = torch.get_deterministic_debug_mode()
    yield
    torch.set_deterministic_debug_mode(mode)


def problem(module: str = MLP, local_steps: int = 1, seed: int = 5, **settings: Any) -> TorchProblem:
    """The two clients of `tests/support/samples.py`."""
    return TorchProblem(TorchModule(module=module, batch_size=8, **settings), blobs(), parts(), local_steps, seed)


# ---------------------------------------------------------------------------------------------------- training


def test_linear_module_follows_logistic_regression() -> None:
    settings = Logistic(regularisation=0.01, batch_size=8, weighting="share")
    logreg = LogisticProblem(settings, blobs(), parts(), 5, 5)
    module = problem("zoo:linear", 5, regularisation=0.01, weighting="share")
    ours, theirs = module.local(1), logreg.local(1)
    one = other = start = logreg.start()
    for _ in range(6):
        one = ours.descend(one, 0.5)
        other = theirs.descend(other, 0.5)
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert np.abs(one - start).max() > 0.1
    mine, reference = module.evaluate([start, one]), logreg.evaluate([start, one])
    np.testing.assert_allclose(mine.train_loss, reference.train_loss, rtol=1e-5)
    np.testing.assert_array_equal(mine.test_accuracy, reference.test_accuracy)


def test_parameters_and_gradients_stay_views() -> None:
    module = problem(local_steps=3)
    flat = module.flat
    module.local(0).descend(module.start(), 0.5)
    module.evaluate([module.start()])
    module.local(1).descend(module.start(), 0.5)
    place = 0
    for parameter in flat.module.parameters():
        assert parameter.data_ptr() == flat.values.data_ptr() + place
        assert parameter.grad.data_ptr() == flat.gradient.data_ptr() + place
        place += 4 * parameter.numel()
    assert flat.is_flat()
    assert flat.array.ctypes.data == flat.values.data_ptr()


def test_what_is_not_a_view_any_more_is_detected() -> None:
    module = problem("zoo:loosening")
    with pytest.raises(UserError, match="Linear replaced a parameter or a gradient"):
        module.local(0).descend(module.start(), 0.5)
    flat = problem().flat
    first = next(flat.module.parameters())
    first.data = first.data.clone()
    assert not flat.is_flat()


@pytest.mark.parametrize(
    ("module", "dimension"),
    [
        ("zoo:tied", (FEATURES + 1) * (FEATURES + CLASSES)),  # sent once, and what is frozen never
        ("zoo:lazy", (FEATURES + 1) * CLASSES),
        (MLP, (FEATURES + 1) * 64 + 65 * CLASSES),
    ],
)
def test_dimensions(module: str, dimension: int) -> None:
    made = problem(module)
    assert made.dimension == dimension
    assert made.dtype == np.float32
    assert not np.array_equal(made.local(0).descend(made.start(), 0.5), made.start())


# ---------------------------------------------------------------------------------------------------- randomness


def test_the_experiments_seed_decides_and_torchs_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    first = problem().start()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    np.testing.assert_array_equal(problem().start(), first)
    assert not np.array_equal(problem(seed=6).start(), first)
    module = problem("zoo:dropout")
    module.local(0).descend(module.start(), 0.5)
    module.evaluate([module.start()])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.are_deterministic_algorithms_enabled()


def test_dropout_does_not_depend_on_the_order_of_arrivals() -> None:
    def rounds(order: tuple[int, ...]) -> dict[int, list[bytes]]:
        module = problem("zoo:dropout", 2)
        clients = [module.local(0), module.local(1)]
        seen: dict[int, list[bytes]] = {0: [], 1: []}
        for client in order:
            seen[client].append(clients[client].descend(module.start(), 0.5).tobytes())
        return seen

    first = rounds((0, 1, 0, 1))
    assert rounds((1, 1, 0, 0)) == first
    assert len({*first[0], *first[1]}) == 4


@pytest.mark.parametrize(
    ("local_steps", "move"),
    [(1, lambda client, start: client.descend(start, 0.5)), (4, lambda client, start: client.gradient(start))],
)
def test_dropout_draws_again_in_each_round_and_step(local_steps: int, move: Callable[[Any, Any], Any]) -> None:
    settings = TorchModule(module="zoo:dropout")
    one_row = TorchProblem(settings, blobs(), [np.array([0])], local_steps, 5)  # every mini-batch is the same
    client = one_row.local(0)
    assert len({move(client, one_row.start()).tobytes() for _ in range(4)}) == 4


def test_dropout_in_whole_rounds_draws_what_it_drew_in_earlier_versions() -> None:
    module = problem("zoo:dropout", 2)
    client = module.local(1)
    model = module.start()
    for _ in range(3):
        model = client.descend(model, 0.5)
    np.testing.assert_allclose(model[:3], [-0.331262201, 0.00721835438, -0.294754952], rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_dropout_after_skipped_steps(steps: int) -> None:
    module = problem("zoo:dropout", 3)
    late, whole = module.local(0), module.local(0)
    start = module.start()
    late.skip(steps)
    whole.descend(start, 0.5, steps)
    for _ in range(3):
        assert late.descend(start, 0.5, 2).tobytes() == whole.descend(start, 0.5, 2).tobytes()
        assert late.gradient(start).tobytes() == whole.gradient(start).tobytes()
    apart, at_once = module.local(1), module.local(1)
    second = apart.descend(apart.descend(start, 0.5), 0.5)
    np.testing.assert_array_equal(at_once.descend(start, 0.5, 6), second)


def test_evaluation_switches_dropout_off_and_on_again() -> None:
    module = problem("zoo:dropout")
    losses = [module.evaluate([module.start()]).train_loss[0] for _ in range(2)]
    assert losses[0] == losses[1]
    assert module.flat.module.training


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("key", "path", "fault"),
    [
        *(("module", path, "write `package.module:function`") for path in ("zoo", "zoo:", ":linear", "")),
        ("module", "no_such_package:model", "ModuleNotFoundError"),
        ("module", "zoo:absent", "lacks 'absent'"),
        ("module", "zoo:NOT_CALLABLE", "holds no callable 'NOT_CALLABLE'"),
        ("module", "zoo:number", "returned int instead of a torch.nn.Module"),
        ("module", "zoo:parameterless", "no trainable parameter"),
        ("module", "zoo:frozen", "no trainable parameter"),
        ("module", "zoo:double", "'weight' is torch.float64"),
        ("module", "zoo:batch_norm", "buffer '0.running_mean'"),
        ("module", "zoo:failing", "ValueError: first line second line"),
        ("module", "zoo:narrow", "6 features and 3 classes"),
        ("module", "zoo:one_class_more", "(2, 4) for 2 samples of 6 features and 3 classes"),
        ("loss", "no_such_package:loss", "ModuleNotFoundError"),
        ("loss", "torch.nn.functional:no_such_loss", "lacks 'no_such_loss'"),
        ("loss", "zoo:NOT_CALLABLE", "holds no callable"),
        ("loss", "zoo:vector_loss", "scalar mean"),
    ],
)
def test_unfit_modules_and_losses_are_refused(key: str, path: str, fault: str) -> None:
    settings: dict[str, Any] = {"module": MLP, key: path}
    with pytest.raises(UserError) as caught:
        TorchProblem(TorchModule(**settings), blobs(), parts(), 1, 5)
    line = str(caught.value)
    assert fault in line
    assert "\n" not in line
    assert line.startswith(f"problem.{key} = {path!r}")
    assert ";" in line  # the remedy


@pytest.mark.parametrize(
    "program",
    [
        "import sys, areabench.problems.examples; sys.exit('torch' in sys.modules)",
        "import sys; sys.modules['torch'] = None\n"
        "from areabench.errors import UserError\n"
        "try:\n    import areabench.problems.torch_flat\n"
        "except UserError as error:\n    sys.exit(0 if 'install torch' in str(error) else 3)\n"
        "sys.exit(4)",
    ],
    ids=["examples import without torch", "missing torch is reported in one line"],
)
def test_imports(program: str) -> None:
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
