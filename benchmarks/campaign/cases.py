"""Cases: experiment and fault of each are drawn from the campaign's seed and its number alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from benchmarks.campaign.kinds import (
    HOPELESS_HEADERS,
    HOPELESS_VALUES,
    MPI,
    STOPPED_BY_UPDATE,
    Act,
    Expected,
    Kind,
    kinds,
    pairs,
)

from areabench.engine.events import Reason

METHODS = ("area", "fedbuff", "as-fedavg", "s-fedavg")
FEWEST_CLIENTS, MOST_CLIENTS = 4, 8
HORIZON_S = (1.5, 3.0)  # on MPI, real seconds
SIMULATED_UPDATES = (12_000, 30_000)  # up to a second
SNAPSHOTS = 200
SNAPSHOTS_OF_MNIST = 2  # the evaluation of one takes a tenth of a second


@dataclass(frozen=True)
class Drawn:
    """An experiment as TOML, and what the campaign must know of it."""

    text: str
    method: str
    problem: str
    clients: int
    horizon_s: float


def draw_experiment(chance: random.Random, kind: Kind, *, fills: bool = False) -> Drawn:
    """One experiment for a kind of fault; `fills`: the disc becomes full."""
    clients = chance.randint(FEWEST_CLIENTS, MOST_CLIENTS)
    method, problem = chance.choice(METHODS), chance.choice(("quadratic", "logistic"))
    if fills or kind.act is Act.DAMAGE_CACHE:
        problem = "logistic"  # its models are large enough to need room soon, and it has data
    rate = chance.uniform(10.0, 40.0)
    horizon_s = chance.uniform(*HORIZON_S)
    if kind.transport != MPI:
        horizon_s = _simulated_horizon_s(chance, method, clients, rate)
    sections = [
        f'name = "campaign"\nseed = {chance.randrange(2**31)}',
        f"[clients]\ncount = {clients}\nlocal_steps = {chance.choice((1, 1, 2, 3))}",
        _problem(chance, problem, clients, mnist=kind.act is Act.DAMAGE_CACHE),
        _rates(chance, rate),
        f'[delays]\nname = "{chance.choice(("exponential", "exponential", "fixed"))}"',
        _method(chance, method, problem, clients),
        _criterion(chance, method, clients, rate),
        f"[stop]\nhorizon_s = {horizon_s:.3f}",
        _record(chance, kind, horizon_s, fills=fills),
    ]
    return Drawn("\n\n".join(sections) + "\n", method, problem, clients, round(horizon_s, 3))


def _simulated_horizon_s(chance: random.Random, method: str, clients: int, rate: float) -> float:
    """Virtual seconds for this many updates; a round of S-FedAvg waits for its slowest client."""
    slower = 1.5 if method == "s-fedavg" else 1.0
    return slower * chance.randint(*SIMULATED_UPDATES) / (clients * rate)


def _problem(chance: random.Random, name: str, clients: int, *, mnist: bool) -> str:
    if name == "quadratic":
        noise = chance.choice((0.0, 0.1))
        return f'[problem]\nname = "quadratic"\ndimension = {chance.randint(3, 40)}\nnoise = {noise}'
    split = chance.choice(("iid", "dirichlet", "dirichlet-equal"))
    data = f'name = "synthetic"\ntrain_samples = {100 * clients}\ntest_samples = 100\nfeatures = 40'
    data = 'name = "mnist"' if mnist else data
    return (
        f'[problem]\nname = "logistic"\nbatch_size = {chance.choice((4, 16))}\n\n[data]\n{data}\n\n'
        f'[split]\nname = "{split}"'
    )


def _rates(chance: random.Random, rate: float) -> str:
    name = chance.choice(("uniform", "normal", "lognormal"))
    values = {
        "uniform": f"rate = {rate:.2f}",
        "normal": f"mean = {rate:.2f}\ndeviation = {rate / 4:.2f}",
        "lognormal": f"median = {rate:.2f}\nsigma = 0.3",
    }
    return f'[rates]\nname = "{name}"\n{values[name]}'


def _method(chance: random.Random, name: str, problem: str, clients: int) -> str:
    """A step size with which no method diverges."""
    step_size = chance.uniform(0.005, 0.03) if problem == "quadratic" else chance.uniform(0.05, 0.5)
    text = f'[method]\nname = "{name}"\nstep_size = {step_size:.4f}'
    if name == "fedbuff":
        text += f"\nserver_step_size = {chance.uniform(0.5, 1.0):.2f}"
    if name == "s-fedavg":
        text += f"\nclients_per_round = {chance.randint(2, clients)}"
    schedule = chance.choice(("constant", "constant", "1/sqrt(k)"))
    return text + f'\n\n[schedule]\nname = "{schedule}"' + ("\noffset = 500.0" if schedule != "constant" else "")


def _criterion(chance: random.Random, method: str, clients: int, rate: float) -> str:
    name = "updates" if method == "s-fedavg" else chance.choice(("updates", "updates", "period", "poisson"))
    step_rate = clients * rate / 4
    values = {
        "updates": f"updates = {chance.randint(1, clients)}",
        "period": f"period_s = {1 / step_rate:.4f}",
        "poisson": f"rate = {step_rate:.3f}",
    }
    return f'[aggregation]\nname = "{name}"\n{values[name]}'


def _record(chance: random.Random, kind: Kind, horizon_s: float, *, fills: bool) -> str:
    snapshots = SNAPSHOTS if fills else chance.choice((SNAPSHOTS // 10, SNAPSHOTS))
    if kind.act is Act.DAMAGE_CACHE:
        snapshots = SNAPSHOTS_OF_MNIST
    interval_s = max(0.001, math.ceil(1000 * horizon_s / snapshots) / 1000)
    average = chance.choice(("false", "false", "true"))
    return f"[record]\ninterval_s = {interval_s}\naverage = {average}"


EARLIEST, LATEST = 0.0, 0.85  # the fault's moment, as a share of the run
LATEST_OF_TWO = 0.5  # so that the second comes before the end, too
LENGTHS = (-8, -64, 8)  # bytes by which an update of a wrong length is longer
SLEEP_S = (0.2, 1.5)
PAUSE_S = (1.0, 5.0)
GAP_S = (0.0, 0.3)  # between two faults
WAITING_SHARE = 8  # one run in eight with a client stopped for good waits for the minute that clients have at the end
STOP_AT_BAD_UPDATE = 0.25  # share of bad updates that meet the policy `stop`


@dataclass(frozen=True)
class Case:
    """One run of the campaign."""

    number: int
    kind: Kind
    drawn: Drawn
    share: float  # of the run, at which the fault comes
    victim: int  # the client concerned
    round: int  # of the victim, at which a defect shows
    always: bool  # the defect shows in each round from then on
    pause_s: float
    extra_bytes: int
    damage_seed: int
    stops: bool  # faults.bad_update = "stop"
    pair: tuple[Kind, ...]  # the faults of a kind of two
    gap_s: float  # between them

    @property
    def name(self) -> str:
        """The name of its folder."""
        letters = "".join(letter if letter.isalnum() else "-" for letter in self.kind.key)
        return f"{self.number:03d}-{letters}"

    @property
    def expected(self) -> Expected:
        """What must be seen after it."""
        expected = self.kind.expected
        if self.stops:
            return replace(STOPPED_BY_UPDATE, reason=expected.reason)
        if expected.reason is not None and self.always and self.drawn.method == "s-fedavg":
            hopeless = HOPELESS_VALUES if expected.reason == Reason.NOT_FINITE else HOPELESS_HEADERS
            return replace(hopeless, reason=expected.reason)
        return expected

    @property
    def ranks(self) -> int:
        """MPI ranks: one per client, and the server's."""
        return self.drawn.clients + 1

    @property
    def fills(self) -> bool:
        """Whether the disc becomes full."""
        return any(fault.act is Act.FILL_DISC for fault in (self.kind, *self.pair))

    @property
    def dying_rank(self) -> int:
        """The rank that dies before the run begins."""
        return self.victim + 1 if self.kind.detail.startswith("client") else 0

    @property
    def waits_for_limit(self) -> bool:
        """Whether a stopped rank is left to the run's own limits: no signal comes."""
        return self.kind.detail == "client" and self.damage_seed % WAITING_SHARE == 0

    def victim_of(self, turn: int) -> int:
        """The client concerned by the first or second fault."""
        return (self.victim + turn) % self.drawn.clients


def draw_case(seed: int, number: int) -> Case:
    """Case `number` of the campaign with this seed: the kinds take turns, everything else is random."""
    every = kinds()
    kind, chance = every[number % len(every)], random.Random(f"{seed}/{number}")
    pair = chance.choice(pairs(kind)) if kind.act is Act.TWO else ()
    fills = any(fault.act is Act.FILL_DISC for fault in (kind, *pair))
    drawn = draw_experiment(chance, kind, fills=fills)
    stops = kind.expected.reason is not None and chance.random() < STOP_AT_BAD_UPDATE
    settings = [*kind.settings, *(['[faults]\nbad_update = "stop"'] if stops else [])]
    return Case(
        number=number,
        kind=kind,
        drawn=replace(drawn, text="\n".join([drawn.text, *settings, ""])),
        share=chance.uniform(EARLIEST, LATEST_OF_TWO if pair else LATEST),
        victim=chance.randrange(drawn.clients),
        round=chance.randint(0, 12 if kind.transport == MPI else 200),
        always=chance.random() < 0.5,
        pause_s=chance.uniform(*(SLEEP_S if kind.act is Act.DEFECT else PAUSE_S)),
        extra_bytes=chance.choice(LENGTHS),
        damage_seed=chance.randrange(2**31),
        stops=stops,
        pair=pair,
        gap_s=chance.uniform(*GAP_S),
    )


COMPARED = (Act.SIGNAL_RANK_0, Act.FILL_DISC, Act.TWO, Act.DAMAGE_CHECKPOINT, Act.DAMAGE_CACHE)


def needs_reference(case: Case) -> bool:
    """Whether the run is compared with one of the same experiment that nothing happened to."""
    return case.kind.transport != MPI and case.kind.act in COMPARED
