"""Rates of the clients and durations of their rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from areabench.errors import UserError
from areabench.experiment.experiment import Clients
from areabench.settings.keys import PythonObject
from areabench.streams import Purpose, stream
from areabench.timing import DELAYS
from areabench.timing.delays import Delays, RoundTime, drawn_steps
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.fixed import FixedDelays
from areabench.timing.own import OwnDelays
from areabench.timing.rates import ListedRates, LognormalRates, NormalRates, RateSettings, UniformRates, client_rates
from areabench.timing.trace import TraceDelays

HEADER = "client,delay_s\n"


def trace(folder: Path, text: str, clients: int = 2, *, per_step: bool = False) -> Delays:
    """Delays from a trace with this content."""
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return Delays(TraceDelays(file=str(path), per="step" if per_step else "round"), np.ones(clients), seed=0)


# ---------------------------------------------------------------------------------------------------- rates


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        (UniformRates(rate=2.5), [2.5, 2.5]),
        (NormalRates(mean=4.0, deviation=0.0), [4.0, 4.0]),
        (ListedRates(values=(1.0, 2.0)), [1.0, 2.0]),
    ],
)
def test_rates_that_are_certain(settings: RateSettings, rates: list[float]) -> None:
    assert client_rates(settings, 2, seed=0).tolist() == rates


def test_normal_rates_take_the_first_positive_draw_of_their_own_column() -> None:
    rounds = 1.0 + 5.0 * stream(7, Purpose.RATES).standard_normal((30, 20))
    assert (rounds[0] <= 0).any()
    expected = rounds[(rounds > 0).argmax(axis=0), np.arange(20)]
    assert np.array_equal(client_rates(NormalRates(mean=1.0, deviation=5.0), 20, seed=7), expected)
    assert not np.array_equal(client_rates(NormalRates(mean=1.0, deviation=5.0), 20, seed=8), expected)
    assert (client_rates(NormalRates(mean=0.001, deviation=5.0), 1000, seed=0) > 0).all()


def test_lognormal_rates() -> None:
    rates = client_rates(LognormalRates(median=3.0, sigma=2.0), 2001, seed=0)
    assert 2.4 < np.median(rates) < 3.7
    assert 1.8 < np.log(rates).std() < 2.2


@pytest.mark.parametrize(
    "settings",
    [LognormalRates(median=1e300, sigma=20.0), NormalRates(mean=1.0, deviation=1e308), UniformRates(rate=1e-310)],
)
def test_rates_beyond_arithmetic(settings: RateSettings) -> None:
    with pytest.raises(UserError, match=r"the rate of client \d+ is .* 1/s, the limits are 1e-300 and 1e\+300"):
        client_rates(settings, 100, seed=0)


# ---------------------------------------------------------------------------------------------------- delays


def test_fixed_delays() -> None:
    delays = Delays(FixedDelays(), np.array([4.0, 0.5]), seed=0)
    assert [delays.next_s(client) for client in (0, 1, 0)] == [0.25, 2.0, 0.25]


def test_exponential_delays_are_the_clients_stream_over_its_rate_whoever_asks_first() -> None:
    delays = Delays(ExponentialDelays(), np.array([1.0, 4.0]), seed=9)
    for client, rate in ((1, 4.0), (0, 1.0)):
        expected = stream(9, Purpose.DELAYS, client).standard_exponential(4000) / rate
        assert [delays.next_s(client) for _ in range(4000)] == expected.tolist()
        assert 0.9 < expected.mean() * rate < 1.1  # six standard errors


@pytest.mark.parametrize("name", DELAYS)
def test_durations_of_every_model_are_the_clients_own_and_can_be_skipped(tmp_path: Path, name: str) -> None:
    (tmp_path / "trace.csv").write_text(HEADER + "0,0.5\n1,2.0\n1,0.25\n")
    settings = DELAYS[name](file=str(tmp_path / "trace.csv")) if name == "trace" else DELAYS[name]()
    whole, late, other = (Delays(settings, np.array([2.0, 4.0]), seed=5) for _ in range(3))
    expected = [whole.next_s(1) for _ in range(40)]
    assert min(expected) > 0
    late.skip_rounds(1, rounds=7, local_steps=0)
    for _ in range(3):
        other.next_s(0)  # whoever asks first
    assert [late.next_s(1) for _ in range(33)] == expected[7:]
    assert [other.next_s(1) for _ in range(40)] == expected


def test_own_delays_are_asked_for_once() -> None:
    asked = []

    def durations(client: int) -> Iterator[float]:
        asked.append(client)
        return iter((0.5, 0.25, 2.0))

    delays = Delays(OwnDelays(name=PythonObject("python:durations", durations)), np.ones(2), 0)
    assert [delays.next_s(client) for client in (1, 1, 0, 1)] == [0.5, 0.25, 0.5, 2.0]
    assert asked == [1, 0]


@pytest.mark.parametrize(
    ("text", "client", "delays_s"),
    [
        (HEADER + "1,0.5\n0,0.1\n0,0.2\n", 0, [0.1, 0.2, 0.1, 0.2, 0.1]),
        (HEADER + "1,0.5\n0,0.1\n0,0.2\n", 1, [0.5, 0.5]),
        ('\ufeff"client","delay_s"\r\n"0", 1e-1\r\n\r\n1,2\r\n', 0, [0.1]),  # as spreadsheets write it
        ('\ufeff"client","delay_s"\r\n"0", 1e-1\r\n\r\n1,2\r\n', 1, [2.0]),
    ],
)
def test_trace_is_used_in_order_then_again(tmp_path: Path, text: str, client: int, delays_s: list[float]) -> None:
    delays = trace(tmp_path, text)
    assert [delays.next_s(client) for _ in delays_s] == delays_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: header ''"),
        ("client,delay\n0,1\n1,1\n", r"line 1: header 'client,delay', expected 'client,delay_s'"),
        (HEADER + "0,1\n1,fast\n", r"line 3: delay 'fast' is not a number"),
        (HEADER + "0,1\none,1\n", r"line 3: client 'one' is not a whole number; write 0 to 1"),
        (HEADER + "0,-0.1\n1,1\n", r"line 2: delay -0.1 s is not allowed"),
        (HEADER + "0,0\n1,1\n", r"line 2: delay 0 s is not allowed"),
        (HEADER + "0,nan\n1,1\n", r"line 2: delay nan s is not allowed"),
        (HEADER + "0,1\n\n1,inf\n", r"line 4: delay inf s is not allowed"),
        (HEADER + "0,1\n1,1\n2,1\n", r"line 4: unknown client 2; write 0 to 1"),
        (HEADER + "-1,1\n", r"line 2: unknown client -1"),
        (HEADER + "0,1,2\n", r"line 2: 3 columns, expected 2"),
        (HEADER + "0,1\n", r"no line for client 1 of 2"),
        (HEADER + "0,1\n1,1\n\udcff", r"not a CSV text file"),
        (None, r"No such file or directory; check delays\.file"),
    ],
)
def test_bad_trace(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "trace.csv"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"trace .*trace\.csv.*" + message):
        Delays(TraceDelays(file=str(path)), np.ones(2), seed=0)


# ---------------------------------------------------------------------------------------------------- local steps


def test_the_steps_of_a_round_are_equally_long() -> None:
    time = Delays(FixedDelays(), np.array([0.5]), seed=0).round_time(0, 4)
    assert time == RoundTime(2.0, 4)
    assert [time.step_end_s(number) for number in (1, 2, 4)] == [0.5, 1.0, 2.0]
    assert [time.steps_in(elapsed_s) for elapsed_s in (0.0, 0.49, 0.5, 1.9, 2.0, 99.0)] == [0, 0, 1, 3, 4, 4]


def test_a_delay_for_each_step_makes_a_round_as_long_as_its_steps(tmp_path: Path) -> None:
    delays = trace(tmp_path, HEADER + "0,0.5\n0,0.25\n0,1.0\n", 1, per_step=True)
    first = delays.round_time(0, 2)
    assert first == RoundTime(0.75, 2, (0.5, 0.75))
    assert [first.steps_in(elapsed_s) for elapsed_s in (0.4, 0.5, 0.75)] == [0, 1, 2]
    assert delays.round_time(0, 3) == RoundTime(1.75, 3, (1.0, 1.5, 1.75))
    assert delays.round_time(0, 0) == RoundTime(0.0, 0)  # draws nothing
    assert delays.round_time(0, 1).duration_s == 1.0


@pytest.mark.parametrize(
    ("settings", "skipped"), [(ExponentialDelays(), 3), (ExponentialDelays(per="step"), 7)], ids=["round", "step"]
)
def test_rounds_that_are_skipped_leave_out_their_delays(settings: ExponentialDelays, skipped: int) -> None:
    delays = Delays(settings, np.ones(1), seed=4)
    delays.skip_rounds(0, rounds=3, local_steps=7)
    assert delays.next_s(0) == stream(4, Purpose.DELAYS).standard_exponential(16)[skipped]


def test_a_client_that_works_by_ticks_makes_a_step_at_each_tick_of_one_clock(tmp_path: Path) -> None:
    delays, skipping = (trace(tmp_path, HEADER + "0,0.1875\n0,0.125\n0,0.875\n0,99.0\n0,0.25\n", 1) for _ in range(2))
    # The rounds end at 0.1875, 0.3125, 1.1875, 100.1875 and 100.4375 s; ticks are at multiples of 0.25 s.
    assert [delays.ticking_round(0, 0.25, 5).local_steps for _ in range(5)] == [0, 1, 3, 5, 1]
    skipping.skip_rounds(0, rounds=2, local_steps=1)
    assert skipping.ticking_round(0, 0.25, 5) == RoundTime(0.875, 3)


def test_a_client_that_draws_its_steps_draws_those_of_a_round_at_any_time() -> None:
    settings = Clients(count=2, local_steps=3, work="uniform")
    drawn = [[drawn_steps(settings, 7, client, number) for number in range(60)] for client in range(2)]
    assert set(drawn[0]) == set(drawn[1]) == {1, 2, 3}
    assert drawn[0] != drawn[1]
    assert drawn_steps(settings, 7, 1, 59) == drawn[1][59]
    assert drawn[0] != [drawn_steps(settings, 8, 0, number) for number in range(60)]
