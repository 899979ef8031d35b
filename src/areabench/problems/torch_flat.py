"""Any torch.nn.Module as one flat float32 vector; the one module that imports torch.

Client i descends weight_i·f_i with f_i(x) = mean loss of its samples + (nu/2)·|x|² and weight_i = s_i/S (`share`) or
n·s_i/S (`exact`). All trainable parameters are views into one flat tensor, their gradients into another, so a local
step copies no model; a round copies one in and one out. All clients of a process share one module and compute in turn.

Building a problem sets torch to one thread and to deterministic algorithms, for the whole process, so that a run is
repeated bit for bit. Random layers such as dropout draw from torch's generator, which is seeded again for each
(client, round of M local steps) and restored afterwards; a module that draws elsewhere (numpy, random) cannot be
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT32, Vector
from areabench.errors import UserError
from areabench.plugins.callables import load_callable, named
from areabench.problems.base import Metrics
from areabench.problems.datasets import Dataset
from areabench.problems.minibatches import DataProblem
from areabench.problems.torch_module import TorchModule
from areabench.streams import Purpose, stream

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise UserError("problem `torch` needs PyTorch, which cannot be imported; install torch") from error

_ROWS_AT_ONCE = 4000  # samples an evaluation converts at a time
_SEEDS = 2**63  # torch's seed lies in [0, _SEEDS)

Loss = Callable[[Tensor, Tensor], Tensor]


def build_module(settings: TorchModule, data: Dataset, loss: Loss) -> nn.Module:
    """The module that the user's factory makes for a data set, checked to be trainable as one flat vector.

    Two samples pass through module and loss, so that a model that does not match the data is refused early.
    """
    key = f"problem.module = {settings.module!r}"
    factory = load_callable(settings.module, "problem.module")
    features = data.train_features.shape[1]
    classes = data.classes
    task = f"{features} features and {classes} classes"
    try:
        module = factory(features, classes)
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{key} failed for {task} ({named(error)}); it must be a function (features, classes) -> torch.nn.Module"
        ) from error
    if not isinstance(module, nn.Module):
        raise UserError(
            f"{key} returned {type(module).__name__} instead of a torch.nn.Module; let the factory return the module"
        )
    # Nothing but trainable float32 parameters is sent.
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UserError(f"{key} has no trainable parameter; add one or leave requires_grad True")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise UserError(
                f"{key}: parameter {name!r} is {parameter.dtype} on {parameter.device}; build the module in "
                "torch.float32 on the CPU"
            )
    for name, _ in module.named_buffers():
        raise UserError(
            f"{key}: buffer {name!r} would not be sent, only parameters are; use layers without buffers, such as "
            "GroupNorm in place of BatchNorm"
        )
    try:
        outputs = module(torch.zeros(2, features))
    except (Exception, SystemExit) as error:
        raise UserError(f"{key} cannot take {task} ({named(error)}); fit the model to the data") from error
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if shape != (2, classes):
        raise UserError(
            f"{key} gives {shape} for 2 samples of {task}; let it give one score per class, shape (2, {classes})"
        )
    try:
        torch.autograd.backward(loss(outputs, torch.zeros(2, dtype=torch.int64)))
    except (Exception, SystemExit) as error:
        raise UserError(
            f"problem.loss = {settings.loss!r} failed on {classes} scores per sample ({named(error)}); it must be a "
            "differentiable function (outputs, labels) -> scalar mean"
        ) from error
    return module


class FlatModule:
    """A module whose trainable parameters and gradients are views into two flat tensors."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.values = torch.cat([parameter.detach().reshape(-1) for parameter in trainable])
        self.gradient = torch.zeros_like(self.values)
        self.array: NDArray[np.float32] = self.values.numpy()  # the same memory
        self._views = tuple(zip(trainable, self._cut(self.values, trainable), strict=True))
        for parameter, view in self._views:
            parameter.data = view
        self._gradient_views = self._cut(self.gradient, trainable)
        for parameter, view in zip(trainable, self._gradient_views, strict=True):
            parameter.grad = view

    @staticmethod
    def _cut(flat: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Views of a flat tensor, shaped like the given tensors in order."""
        pieces = torch.split(flat, [tensor.numel() for tensor in like])
        return tuple(piece.view(tensor.shape) for piece, tensor in zip(pieces, like, strict=True))

    def differentiate(self, loss: Loss, inputs: Tensor, labels: Tensor) -> None:
        """Leave the gradient of the loss in `gradient`; zeroed in place, as None would detach the views."""
        self.gradient.zero_()
        torch.autograd.backward(loss(self.module(inputs), labels))
        if not self.is_flat():
            raise UserError(
                f"{type(self.module).__name__} replaced a parameter or a gradient during training, which detaches it "
                "from the flat vector; change tensors in place and do not call zero_grad"
            )

    def is_flat(self) -> bool:
        """Whether all parameters and gradients still are views into the flat tensors."""
        return all(
            parameter.grad is gradient and parameter.data_ptr() == view.data_ptr()
            for (parameter, view), gradient in zip(self._views, self._gradient_views, strict=True)
        )


class TorchProblem(DataProblem):
    """The global objective of a module over a data set that is split over the clients."""

    dtype = FLOAT32

    def __init__(
        self, settings: TorchModule, data: Dataset, parts: Sequence[NDArray[np.int64]], local_steps: int, seed: int
    ) -> None:
        torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would import torch's compiler: 70 MB
        super().__init__(data, parts, local_steps, seed, settings.batch_size, settings.weighting)
        self.settings = settings
        self.loss: Loss = load_callable(settings.loss, "problem.loss")
        # Torch's own generator is seeded from the experiment's seed, and restored.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(stream(seed, Purpose.START).integers(_SEEDS)))
            self.flat = FlatModule(build_module(settings, data, self.loss).train())
        self._start = self.flat.array.copy()
        self.dimension = len(self._start)

    def start(self) -> Vector:
        """The parameters as the module initialises them."""
        return self._start.copy()

    def local(self, client: int) -> LocalTorch:
        """Client `client`'s objective, at its first round."""
        return LocalTorch(self, client)

    def evaluate(self, models: Sequence[Vector], *, with_loss: bool = True) -> Metrics:
        """Loss with regulariser over all training samples, if asked for, and accuracy (%) over all test samples."""
        loss = np.full(len(models), np.nan)
        self.flat.module.eval()
        try:
            with torch.no_grad():
                if with_loss:
                    squares = np.array([np.einsum("d,d->", model, model, dtype=np.float64) for model in models])
                    loss = self._total(
                        "train", models, lambda scores, labels: self.loss(scores, labels).double() * len(labels)
                    )
                    loss = loss / len(self.data.train_labels) + 0.5 * self.settings.regularisation * squares
                hits = self._total("test", models, lambda scores, labels: (scores.argmax(dim=1) == labels).sum())
        finally:
            self.flat.module.train()
        return Metrics.of(loss, 100.0 * hits / len(self.data.test_labels))

    def _total(self, part: Literal["train", "test"], models: Sequence[Vector], measure: Loss) -> NDArray[np.float64]:
        """What is measured on the scores of each model, shape (samples, classes), over all samples of a part."""
        total = np.zeros(len(models))
        for inputs, labels in self.data.chunks(part, FLOAT32, _ROWS_AT_ONCE):
            samples = torch.from_numpy(inputs)
            classes = torch.from_numpy(labels.astype(np.int64))
            for index, model in enumerate(models):
                np.copyto(self.flat.array, model)
                total[index] += float(measure(self.flat.module(samples), classes))
        return total


class LocalTorch:
    """One client's share of the objective.

    Torch's generator is seeded at the first step of each call and of each round of M steps. What random layers draw
    depends on how many local steps the client took before the call, and on the number of steps in the call: a call that
    begins within a round has a seed of its own, so three calls of one step draw other numbers than one call of three.
    """

    def __init__(self, problem: TorchProblem, client: int) -> None:
        self._problem = problem
        self._batches = problem.batches(client)
        self._weight = problem.weights[client]
        # One seed for each round of M steps, from a stream that is independent of the mini-batches'.
        self._seeds = stream(problem.seed, Purpose.SAMPLES, client).spawn(1)[0]
        self._round = -1  # of the last seed drawn
        self._seed = 0
        self._taken = 0  # local steps so far

    def descend(self, model: Vector, step_size: float, steps: int | None = None) -> Vector:
        """M or `steps` steps x <- x - alpha·weight·(mini-batch gradient + nu·x); a new array."""
        flat = self._problem.flat
        rate = step_size * self._weight
        np.copyto(flat.array, model)
        with torch.random.fork_rng(devices=[]):
            batches = self._batches.next_batches(steps)
            for number, rows in enumerate(batches):
                self._differentiate(rows, begins=number == 0)
                flat.values.add_(flat.gradient, alpha=-rate)
        return flat.array.copy()

    def gradient(self, model: Vector) -> Vector:
        """weight·(gradient of the next mini-batch + nu·x); a new array."""
        flat = self._problem.flat
        np.copyto(flat.array, model)
        with torch.random.fork_rng(devices=[]):
            self._differentiate(self._batches.next_batches(1)[0], begins=True)
        return np.asarray(flat.gradient.numpy() * np.float32(self._weight))

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        self._batches.skip_batches(steps)
        self._taken += steps

    def _differentiate(self, rows: NDArray[np.int64], *, begins: bool) -> None:
        """Leave the gradient on a mini-batch in the flat module; `begins`: this is the first step of a call."""
        problem = self._problem
        flat = problem.flat
        number, place = divmod(self._taken, problem.local_steps)
        if begins or place == 0:
            if number > self._round:
                self._seed = int(self._seeds.integers(_SEEDS, size=number - self._round)[-1])
                self._round = number
            torch.default_generator.manual_seed((self._seed + place) % _SEEDS)
        self._taken += 1
        inputs = torch.from_numpy(problem.data.inputs(rows, FLOAT32))
        labels = torch.from_numpy(problem.data.train_labels[rows].astype(np.int64, copy=False))
        flat.differentiate(problem.loss, inputs, labels)
        if problem.settings.regularisation:
            flat.gradient.add_(flat.values, alpha=problem.settings.regularisation)
