"""Whole runs with secure aggregation in the simulator: masked and plain sums are one, whatever happens meanwhile."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from tests.methods.every_method import BY_SUMS, Spoilt, experiment_of, logistic_experiment, replay_equals, silent
from tests.support.random_experiments import private_experiments
from tests.transports.test_resume import around, assert_equal_after, stop_at

from areabench.arrays import Vector
from areabench.cli.main import main
from areabench.engine.events import Kind, Reason, State, Status
from areabench.engine.lanes import group_lanes
from areabench.engine.scenario import Scenario, build_scenario
from areabench.engine.server import Server
from areabench.errors import RunFailure, UserError
from areabench.experiment.checks import check_combinations
from areabench.experiment.experiment import Clients, Experiment, Faults, Stop
from areabench.methods import METHODS
from areabench.methods.criteria import EveryPeriod, EveryUpdates
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fixed_point import FixedPoint, Privacy, SumState
from areabench.privacy import keys
from areabench.problems.quadratic import Quadratic
from areabench.runfile.read import open_run
from areabench.timing.fixed import FixedDelays
from areabench.timing.rates import UniformRates
from areabench.transports import session
from areabench.transports.session import simulate_run
from areabench.transports.simulator import LaneRecorder, Simulator

__all__ = ["stop_at"]  # a fixture
by_sums = pytest.mark.parametrize("name", BY_SUMS)


def private(name: str = "area", **changed: Any) -> Experiment:
    """Five clients of uneven speed with noisy quadratics, and secure aggregation."""
    return check_combinations(replace(experiment_of(name), privacy=Privacy(**changed)))


def replayed(experiment: Experiment, folder: Path) -> Status:
    """How a simulation ends, whose replay must be equal."""
    status = simulate_run(experiment, around(folder / "run.h5", None))
    replay_equals(folder / "run.h5", build_scenario(experiment, folder))
    return status


@pytest.fixture(autouse=True)
def own_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AREABENCH_CLIENT_SECRET", str(tmp_path / "client-secret"))


# ---------------------------------------------------------------------------------------------------- every method


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(BY_SUMS)))
def test_methods_that_need_more_than_sums_refuse_in_one_line(name: str) -> None:
    with pytest.raises(UserError, match=f'^privacy: method "{name}" uses each update by itself'):
        private(name)


@by_sums
@pytest.mark.parametrize("faults", [Faults(), Faults(lost=(0, 3), lost_at_s=(0.4, 0.9))], ids=["all", "two lost"])
def test_a_private_run_ends_and_replays_bit_for_bit(tmp_path: Path, name: str, faults: Faults) -> None:
    status = replayed(replace(private(name), faults=faults), tmp_path)
    assert (status.state, status.lost, status.server_steps > 3) == (State.DONE, len(faults.lost), True)


@by_sums
def test_a_private_run_that_was_stopped_twice_equals_one_that_was_not(
    tmp_path: Path,
    stop_at: Callable[[int], None],  # noqa: F811  # the fixture
    name: str,
) -> None:
    assert_equal_after(private(name), tmp_path, stop_at, 9, 4)


@by_sums
def test_an_update_that_is_not_finite_is_refused_by_its_client(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = private(name)
    problem = type(build_scenario(experiment, tmp_path).problem)
    local = problem.local
    monkeypatch.setattr(
        problem, "local", lambda own, client: Spoilt(local(own, client)) if client == 0 else local(own, client)
    )
    status = replayed(experiment, tmp_path)
    assert (status.state, status.refused) == (State.DONE, 1)
    with open_run(tmp_path / "run.h5") as run:
        row = run.events_array[run.events_array["kind"] == Kind.REFUSED][0]
        assert (row["client"], row["reason"], row["digest"]) == (0, Reason.OUTSIDE, 0)


# ---------------------------------------------------------------------------------------------------- sums


def opened(experiment: Experiment, folder: Path, *, masked: bool = False) -> tuple[list[NDArray[np.int64]], Simulator]:
    """All sums that a simulation's server used, as integers with signs; not `masked`: without masks at all."""
    sums: list[NDArray[np.int64]] = []
    real = Server.aggregate

    def aggregate(server: Server, time_s: float) -> Any:
        masking = server._method.masked
        unmask = server._unmask
        assert masking is not None
        if names := masking.covered(server.state):
            if unmask is not None:
                server._state = masking.uncover(server.state, unmask(names))
            total = server.state.pending.total
            sums.append(total.view(f"i{total.dtype.itemsize}").astype(np.int64))
        server._unmask = None  # the masks are removed
        orders = real(server, time_s)
        server._unmask = unmask
        return orders

    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore", invalid="ignore"):
        patch.setattr(Server, "aggregate", aggregate)
        if not masked:
            patch.setattr(Scenario, "in_one_process", lambda scenario: scenario)
        simulator = Simulator(build_scenario(experiment, folder), LaneRecorder(1), silent)
        try:
            simulator.run()
        except RunFailure as failure:
            assert "privacy." in str(failure) or experiment.faults.bad_update == "stop"  # noqa: PT017
    return sums, simulator


def memories(simulator: Simulator) -> list[Vector]:
    return [client.memory for client in simulator._clients.values() if client.memory is not None]


@settings(max_examples=60)
@given(private_experiments())
def test_a_sum_without_its_masks_is_the_plain_sum(experiment: Experiment) -> None:
    """Whatever arrives in which order, is lost, refused or clipped, in any experiment that has secure aggregation."""
    masked, _ = opened(experiment, Path("nowhere"), masked=True)
    plain, _ = opened(experiment, Path("nowhere"))
    assert len(masked) == len(plain)
    assert all(np.array_equal(one, other) for one, other in zip(masked, plain, strict=True))


@pytest.mark.parametrize(("name", "limit"), [("area", 0.3), ("ca2fl", 0.3), ("afa-cs", 10.0), ("dude", 10.0)])
@pytest.mark.parametrize("outside", ["clip", "refuse"])
@pytest.mark.parametrize("seed", range(3))
def test_what_clients_remember_is_exactly_what_was_used_or_waits(
    tmp_path: Path, name: str, limit: float, outside: str, seed: int
) -> None:
    """AREA's invariant, in integers; with lost updates, and others that are clipped or refused."""
    faults = Faults(lost=(1,), lost_at_s=(0.7,))
    experiment = replace(private(name, range=limit, outside=outside), seed=seed, faults=faults)
    sums, simulator = opened(experiment, tmp_path)
    state: SumState = simulator._conductor._server.state
    number = FixedPoint.of(experiment.privacy or Privacy())
    used = sum(sums, np.zeros(3, np.int64))
    waits = np.zeros(3, np.int64) if state.pending.total is None else number.as_signed(state.pending.total)
    remembered = np.sum(memories(simulator), axis=0)
    assert remembered.any()
    assert np.array_equal(remembered, used + waits)


def test_the_model_of_area_is_the_mean_of_the_memories(tmp_path: Path) -> None:
    """x_s + u to single precision, after some hundred steps."""
    experiment = replace(private(), stop=Stop(horizon_s=20.0))
    _, simulator = opened(experiment, tmp_path)
    scenario = build_scenario(experiment, tmp_path)
    number = FixedPoint.of(experiment.privacy or Privacy())
    state: SumState = simulator._conductor._server.state
    waits = 0 if state.pending.total is None else number.as_signed(state.pending.total)
    mean = np.mean(memories(simulator), axis=0) * number.resolution
    u = waits * number.resolution / 5
    np.testing.assert_allclose(state.model + u, scenario.start + mean, rtol=0, atol=2e-6)


# ---------------------------------------------------------------------------------------------------- and plain runs

TOGETHER: dict[str, Any] = {  # every sum is of all five clients, once each
    "clients": Clients(count=5, local_steps=3),
    "aggregation": EveryUpdates(updates=5),
    "rates": UniformRates(rate=10.0),
    "delays": FixedDelays(),
    "problem": Quadratic(dimension=3, noise=0.1),
    "stop": Stop(horizon_s=10.0),
}


def last_model(experiment: Experiment, path: Path) -> Vector:
    simulate_run(experiment, around(path, None))
    with open_run(path) as run:
        model: Vector = run.models[-1]
        return model


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", ["area", "fedbuff", "ca2fl", "dude"])
def test_a_private_run_differs_from_a_plain_one_by_rounding_only(tmp_path: Path, name: str, bits: int) -> None:
    """AREA, CA2FL and the tables carry no rounding over, FedBuff adds up to half a unit times eta for each step.

    The problem contracts, so that nothing grows; single precision adds 1e-6.
    """
    experiment = replace(experiment_of(name), **TOGETHER)
    if name == "fedbuff":
        experiment = replace(experiment, method=FedBuff(step_size=0.02, server_step_size=1.0))
    plain = last_model(experiment, tmp_path / "plain.h5")
    settings_ = Privacy(bits=bits)
    masked = last_model(replace(experiment, privacy=settings_), tmp_path / "private.h5")
    resolution = 2.0**-settings_.fraction_bits
    bound = (50 if name == "fedbuff" else 4) * resolution + 2e-6
    assert np.abs(plain - masked).max() <= bound
    if bits == 32:
        assert np.abs(plain - masked).max() > 0


def test_trajectories_do_not_depend_on_the_keys(tmp_path: Path) -> None:
    first, again = last_model(private(), tmp_path / "a.h5"), last_model(private(), tmp_path / "b.h5")
    assert first.tobytes() == again.tobytes()


# ---------------------------------------------------------------------------------------------------- range


def test_clipped_updates_are_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replayed(private(range=0.1), tmp_path).state == State.DONE
    said = capsys.readouterr().err
    with open_run(tmp_path / "run.h5") as run:
        clipped = run.clipped
        assert 0 < clipped < run.status.updates
    assert f"{clipped} updates had entries beyond privacy.range = 0.1 and were clipped; raise it" in said
    main(["show", str(tmp_path / "run.h5")])
    assert f"{clipped} clipped, 0 refused" in capsys.readouterr().out


def test_updates_outside_are_refused_and_their_clients_work_again(tmp_path: Path) -> None:
    status = replayed(private(range=0.3, outside="refuse"), tmp_path)
    assert status.state == State.DONE
    assert status.refused > 0


def test_a_range_that_fits_nothing_ends_the_run_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match=r"every client at work was refused: .*; raise privacy.range"):
        simulate_run(private(range=1e-5, outside="refuse"), around(tmp_path / "run.h5", None))
    with open_run(tmp_path / "run.h5") as run:
        assert run.status.state == State.FAILED


def test_updates_that_are_not_finite_any_more_end_the_run_as_diverged(tmp_path: Path) -> None:
    experiment = replace(private("fedbuff"), method=FedBuff(step_size=1e200, server_step_size=1.0))
    assert simulate_run(experiment, around(tmp_path / "run.h5", None)).state == State.DIVERGED


# ---------------------------------------------------------------------------------------------------- keys


def test_keys_are_in_no_file_and_each_run_has_new_ones(
    tmp_path: Path,
    stop_at: Callable[[int], None],  # noqa: F811  # the fixture
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Private and agreed keys, in bytes, hexadecimal or base64; and neither are the memories of the clients."""
    agreed: list[bytes] = []
    real = keys.KeyPair.agree

    def agree(pair: keys.KeyPair, public: bytes, client: int) -> bytes:
        key = real(pair, public, client)
        agreed.extend([key, pair._private.private_bytes_raw()])
        return key

    monkeypatch.setattr(keys.KeyPair, "agree", agree)
    stop_at(30)
    assert simulate_run(private(), around(tmp_path / "run.h5")).state == State.STOPPED
    first = set(agreed)
    texts = [path.read_bytes() for path in tmp_path.iterdir() if path.name != "client-secret"]
    assert any(path.name.endswith(".checkpoint") for path in tmp_path.iterdir())
    texts += [text.encode() for text in capfd.readouterr()]
    for key in first:
        for form in (key, key.hex().encode(), base64.b64encode(key)):
            assert all(form not in text for text in texts)
    assert len(first) > 6
    agreed.clear()
    stop_at(10**9)
    with open_run(tmp_path / "run.h5") as run:
        assert session.resume_simulation(run, around(tmp_path / "run.h5")).state == State.DONE
    assert first.isdisjoint(agreed)
    assert agreed


def test_a_secret_that_cannot_be_made_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AREABENCH_CLIENT_SECRET", str(tmp_path / "file" / "secret"))
    with pytest.raises(
        UserError, match=r"the secret of the clients cannot be read or made: .*AREABENCH_CLIENT_SECRET=FILE"
    ):
        simulate_run(private(), around(tmp_path / "run.h5"))
    assert simulate_run(private("fedbuff"), around(tmp_path / "other.h5")).state == State.DONE  # nothing to seal


def test_memories_in_a_checkpoint_are_sealed(
    tmp_path: Path,
    stop_at: Callable[[int], None],  # noqa: F811  # the fixture
) -> None:
    stop_at(30)
    simulate_run(private(), around(tmp_path / "run.h5"))
    (tmp_path / "client-secret").write_bytes(bytes(32))
    stop_at(10**9)
    with open_run(tmp_path / "run.h5") as run, pytest.raises(UserError, match="was not sealed with the secret"):
        session.resume_simulation(run, around(tmp_path / "run.h5"))


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"aggregation": EveryUpdates(updates=1)},
            "aggregation.updates: sums of 1 are not within",
        ),
        ({"faults": Faults(lost_client="remove")}, 'faults.lost_client: "remove" asks clients for their memories'),
        ({"privacy": Privacy(bits=33)}, "privacy.bits: 33 is not supported; use 32 or 64"),
        ({"privacy": Privacy(range=1e6, most_updates=10**6)}, "leave no bits behind the point; use bits = 64"),
        ({"privacy": Privacy(threshold=6)}, "privacy.threshold: 6 is more than clients.count = 5"),
        ({"local": replace(experiment_of("area").local, control_variates=True)}, "local.control_variates: the server"),
    ],
)
def test_combinations_that_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        check_combinations(replace(private(), **changed))


def test_steps_by_the_clock_wait_for_enough_clients(tmp_path: Path) -> None:
    experiment = replace(private(), privacy=Privacy(threshold=4), aggregation=EveryPeriod(period_s=0.1))
    status = simulate_run(experiment, around(tmp_path / "run.h5", None))
    assert status.state == State.DONE
    with open_run(tmp_path / "run.h5") as run:
        assert {Kind.NO_STEP, Kind.STEP} <= set(run.events_array["kind"].tolist())


def test_an_own_method_with_sums_takes_part(tmp_path: Path) -> None:
    """The one that docs/extending.md shows."""
    from areabench import read_experiment

    folder = Path(__file__).parents[2] / "analysis" / "own"
    experiment = read_experiment(folder / "own.toml", privacy={"bits": 64}, stop={"horizon_s": 1.0})
    assert simulate_run(experiment, around(tmp_path / "run.h5", None)).server_steps > 3
    replay_equals(tmp_path / "run.h5", build_scenario(experiment, tmp_path, experiment.module_folders or ()))


def test_private_runs_share_no_pass() -> None:
    experiment = replace(logistic_experiment("area", 0.1), privacy=Privacy())
    plain = replace(experiment, privacy=None)
    assert group_lanes([experiment, plain, experiment, plain]) == [(0,), (1, 3), (2,)]
