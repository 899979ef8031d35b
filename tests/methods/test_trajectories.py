"""Every method's server by hand: who delivers, and the model that follows, in tables of numbers."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.methods.table import Table, inputs
from tests.support.quadratics import four_clients, two_clients

from areabench.methods.aced import Aced
from areabench.methods.afa_cd import AfaCd
from areabench.methods.area import Area
from areabench.methods.as_fedavg import AsFedAvg
from areabench.methods.async_sgd import AsyncSgd
from areabench.methods.asynccomm_sgd import AsyncCommSgd
from areabench.methods.asyncfeded import AsyncFedEd
from areabench.methods.base import MethodSettings
from areabench.methods.ca2fl import Ca2fl
from areabench.methods.favas import Favas
from areabench.methods.fedasync import FedAsync
from areabench.methods.fedbuff import FedBuff
from areabench.methods.fedbuff_published import FedBuffPublished
from areabench.methods.fedfix import FedFix
from areabench.methods.fedstaleweight import FedStaleWeight
from areabench.methods.gradient_tables import Ace, AfaCs, Dude, Ia2Sgd
from areabench.methods.malenia import Malenia
from areabench.methods.mifa import Mifa
from areabench.methods.quafl import QuAfl
from areabench.methods.rennala import Rennala
from areabench.methods.ringleader import Ringleader
from areabench.methods.ringmaster import Ringmaster
from areabench.methods.s_fedavg import SFedAvg
from areabench.methods.server_optimisers import Fadas, ServerAdam, ServerMomentum

approx = pytest.approx
NEVER = 10**9  # updates between two server steps, where the clock decides
CLOCK = "the clock"


class Made(NamedTuple):
    """A client delivers after so many local steps."""

    client: int
    steps: int


class Contacted(NamedTuple):
    """The next round contacts this client alone, which has made so many local steps."""

    client: int
    steps: int


class Hand(NamedTuple):
    """A trajectory from (8, 8) with step sizes of 1/2.

    A row has the event (clients that deliver one after the other, or one of the above), x_s, (k, version), and the
    order of the last client: its model, version and k. What follows from the other rows may be left out.
    """

    settings: MethodSettings
    rows: tuple[tuple[Any, ...], ...]
    delta: int = 1
    local_steps: int = 1
    clients: int = 2
    known: dict[str, Any] = {}  # that the method is told besides  # noqa: RUF012  # nobody changes it


# A step along the mean gradient for each arrival, as long as alpha.
STEP_EACH = (
    ((0,), [8, 8], (1, 0), ([8, 8], 0, 1)),  # G_0 = (4,8); client 1 is awaited
    ((0,), [8, 8], (2, 0)),  # the same gradient, a message of zeros
    ((1,), [3, 6], (4, 1), ([3, 6], 1, 4)),  # G_1 = (16,0), mean (10,4): (8,8) - (5,2), and then the reply
    ((0,), [-2, 4], (6, 2), ([-2, 4], 2, 6)),  # stale: (4,8) again, the mean stays: (3,6) - (5,2)
    ((0,), [-4.5, 3]),  # G_0 = (-6,4), sum (10,4), mean (5,2)
    ((1,), [-4.5, 2.5], (10, 4)),  # from (3,6): G_1 = (6,-2), sum (0,2), mean (0,1)
)
FEDBUFF_2 = (
    ((0, 0), [7, 6], (3, 1), ([8, 8], 0, 2)),  # twice (8,8) - (6,4) = (2,4); the reply is from before the step
    ((1,), [7, 6], (4, 1), ([7, 6], 1, 4)),  # stale: (8,8) - (0,8) = (8,0)
    ((0,), [4.5, 5]),  # stale: (2,4); mean (5,2)
    ((0, 1), [2.375, 4.5], (9, 3)),  # (7,6) - (5.5,3) = (1.5,3) and (7,6) - (0,7) = (7,-1); mean (4.25,1)
)
SLOWED = 1 / (sqrt(20) / 8 + 1)  # of AsyncFedED: |(6,4) - (8,8)| = sqrt(20), |(8,0)| = 8
NEARLY = 1 / (8 * SLOWED / sqrt(1.875**2 + 3.75**2) + 1)  # the server has moved by (8 SLOWED, 0)
ADAM = [8 - 1 / (sqrt(2) + 1), 8 - 2 / (sqrt(8) + 1)]
FADAS = [8 - 0.75 / (sqrt(2) + 1), 8 - 1.5 / (sqrt(8) + 1)]
FADAS_2 = [FADAS[0] - 0.75 * 1.5 / (sqrt(3) + 1), FADAS[1] - 0.75 * 3 / (sqrt(12) + 1)]

HANDS: dict[str, Hand] = {
    # ------------------------------------------------------------------------------------------------ the four methods
    "area": Hand(  # client 0 is the fast one: it delivers twice before client 1 delivers at all
        Area(step_size=0.5),
        (
            ((0,), [8, 8], (1, 0), ([8, 8], 0, 1)),  # (8,8) -> (6,4), m = (-2,-4), u = (-1,-2)
            ((0,), [7, 6], (3, 1), ([8, 8], 0, 2)),  # (6,4) = y_0, m = 0; x_s = (8,8) + u; the order is from before
            ((1,), [7, 6], (4, 1), ([7, 6], 1, 4)),  # stale: (8,8) -> (0,8), m = (-8,0), u = (-4,0)
            ((0,), [3, 6], (6, 2), ([7, 6], 1, 5)),  # stale: m = 0; (7,6) + (-4,0)
            ((0,), [3, 6], (7, 2), ([3, 6], 2, 7)),  # (7,6) -> (5.5,3), m = (-0.5,-1), u = (-0.25,-0.5)
            ((1,), [2.75, 5], (9, 3)),  # (7,6) -> (0,7), m = (0,-1), u = (-0.25,-1)
        ),
        delta=2,
    ),
    "area, first messages of zero": Hand(  # the appendix: a client first trains on the reply to its first message
        Area(step_size=0.5, first_message="zero"),
        (
            ((0,), [8, 8], (1, 0), ([8, 8], 0, 1)),  # nothing is trained, m = 0, y_0 = (8,8)
            ((0,), [7, 6], (3, 1), ([8, 8], 0, 2)),  # (8,8) -> (6,4), m = (-2,-4), u = (-1,-2)
            ((1,), [7, 6], (4, 1), ([7, 6], 1, 4)),  # client 1's first: m = 0, y_1 = (8,8)
            ((1,), [3, 5.5], (6, 2)),  # (7,6) -> (0,7), m = (-8,-1), u = (-4,-0.5)
            ((0, 0), [1.75, 4.875]),  # stale: m = 0; (3,5.5) -> (3.5,2.75): m = (-2.5,-1.25), u = (-1.25,-0.625)
        ),
        delta=2,
    ),
    "area, four clients": Hand(
        Area(step_size=0.5),
        (
            ((2, 2), [7, 7], (3, 1), ([8, 8], 0, 2)),  # (8,8) -> (4,4): m = (-4,-4), then 0; u = (-1,-1)
            ((3, 2), [5.5, 5.5]),  # (8,8) -> (2,2): m = (-6,-6), then client 2 once more from (8,8): 0
            ((2, 0), [4.875, 4.375]),  # (7,7) -> (3.5,3.5): m = (-0.5,-0.5); (8,8) -> (6,4): m = (-2,-4)
        ),
        delta=2, clients=4,
    ),
    "area, M = 2": Hand(  # from (8,8) client 0 goes (6,4), (5,2) and client 1 goes (0,8), (0,8)
        Area(step_size=0.5),
        (
            ((0, 1), [2.5, 5], (3, 1), ([8, 8], 0, 2)),  # m = (-3,-6) and (-8,0); u = (-5.5,-3)
            ((0, 0), [1.8125, 4.625]),  # m = 0; (2.5,5) -> (3.25,2.5) -> (3.625,1.25): m = (-1.375,-0.75)
        ),
        delta=2, local_steps=2,
    ),
    "as-fedavg": Hand(
        AsFedAvg(step_size=0.5),
        (
            ((0, 0), [6, 4], (3, 1), ([8, 8], 0, 2)),  # twice (8,8) -> (6,4)
            ((1,), [6, 4], (4, 1), ([6, 4], 1, 4)),  # stale: (8,8) -> (0,8)
            ((0,), [3, 6], (6, 2), ([6, 4], 1, 5)),  # stale: (6,4); mean of (0,8) and (6,4)
            ((0, 1), [2.5, 4], (9, 3)),  # (6,4) -> (5,2) and (6,4) -> (0,6)
        ),
        delta=2,
    ),
    "as-fedavg, four clients": Hand(  # those that are silent have no say
        AsFedAvg(step_size=0.5), (((2, 2), [4, 4]), ((3, 2), [3, 3])), delta=2, clients=4
    ),
    "as-fedavg, M = 2": Hand(
        AsFedAvg(step_size=0.5),
        (
            ((0, 1), [2.5, 5]),  # (5,2) and (0,8)
            ((0, 0), [4.3125, 1.625]),  # stale (5,2), then (2.5,5) -> (3.625,1.25)
        ),
        delta=2, local_steps=2,
    ),
    "fedbuff": Hand(FedBuff(step_size=0.5, server_step_size=0.5), FEDBUFF_2, delta=2),
    "fedbuff, eta = alpha": Hand(FedBuff(step_size=0.5), FEDBUFF_2, delta=2),
    "fedbuff, eta = 1/4": Hand(FedBuff(step_size=0.5, server_step_size=0.25), (((0, 0), [7.5, 7]),), delta=2),
    "fedbuff, M = 2": Hand(
        FedBuff(step_size=0.5),
        (
            ((0, 1), [5.25, 6.5]),  # (3,6) and (8,0); mean (5.5,3)
            # stale (3,6), then (5.25,6.5) -> (4.625,3.25) -> (4.3125,1.625): (0.9375,4.875); mean (1.96875,5.4375)
            ((0, 0), [4.265625, 3.78125]),
        ),
        delta=2, local_steps=2,
    ),
    "s-fedavg": Hand(
        SFedAvg(step_size=0.5, clients_per_round=2),
        (
            ((0,), [8, 8], (1, 0)),  # (6,4); nobody works until the round is complete
            ((1,), [3, 6], (3, 1), ([3, 6], 1, 3)),  # (0,8)
            ((1, 0), [1.75, 5], (6, 2)),  # (3,6) -> (0,7) and (3,6) -> (3.5,3)
        ),
    ),
    "s-fedavg, M = 2": Hand(
        SFedAvg(step_size=0.5, clients_per_round=2),
        (
            ((0, 1), [2.5, 5]),  # (5,2) and (0,8)
            ((0, 1), [1.8125, 4.25]),  # (3.625,1.25), and (2.5,5) -> (0,6.5) -> (0,7.25)
        ),
        local_steps=2,
    ),
    # ------------------------------------------------------------------------------------------------ buffered
    "fedbuff-published": Hand(  # updates are divided by sqrt(1 + tau)
        FedBuffPublished(step_size=0.5),
        (
            ((0,), [6, 4], (2, 1), ([8, 8], 0, 1)),  # (2,4), tau = 0; the reply is from before the step
            ((0,), approx([6 - sqrt(2), 4 - 2 * sqrt(2)]), (4, 2), ([6, 4], 1, 3)),  # (2,4), tau = 1
            ((0,), approx([6 - 1.5 * sqrt(2), 4 - 3 * sqrt(2)])),  # (6,4) - (5,2) = (1,2), tau = 1
            ((1,), approx([2 - 1.5 * sqrt(2), 4 - 3 * sqrt(2)]), (8, 4)),  # (8,0), tau = 3
        ),
    ),
    "fedbuff-published, K = 2": Hand(  # divides by K, not by the sum of the factors
        FedBuffPublished(step_size=0.5),
        (
            ((0, 0), [6, 4]),  # (2,4) twice, both fresh
            ((0, 1), approx([6 - 5 / sqrt(2), 4 - 2 / sqrt(2)])),  # ((2,4) + (8,0))/sqrt(2)/2, tau = 1 each
        ),
        delta=2,
    ),
    "fedfix": Hand(  # client 0 is in every step, client 1 in every second one: d = (1/2, 1)
        FedFix(step_size=0.5),
        (
            ((0,), [8, 8], (1, 0)),  # (2,4), half of it; client 0 waits for the step
            (CLOCK, [7, 6], (2, 1), ([7, 6], 1, 2)),
            ((1, 0), [7, 6]),  # stale: (8,0); (7,6) - (5.5,3) = (1.5,3), half of it
            (CLOCK, [-1.75, 4.5], (5, 2), ([-1.75, 4.5], 2, 5)),
            (CLOCK, [-1.75, 4.5], (6, 3)),  # nobody has answered
        ),
        delta=NEVER, known={"rates": np.array([4.0, 2.0]), "period_s": 0.25, "delays": "fixed"},
    ),
    "fedfix, all answer": Hand(  # the plain mean of 4, 8, 4, 6 and 4, 0, 4, 6 halved
        FedFix(step_size=0.5),
        (((0, 1, 2, 3), [8, 8]), (CLOCK, [3, 4.5], (5, 1), ([3, 4.5], 1, 5))),
        delta=NEVER, clients=4, known={"rates": np.full(4, 4.0), "period_s": 0.25, "delays": "fixed"},
    ),
    "fedstaleweight": Hand(
        FedStaleWeight(step_size=0.5),
        (
            ((0, 1), [8, 8], (3, 1)),  # both are fresh and weigh nothing
            ((0,), [8, 8], (4, 1), ([8, 8], 1, 4)),  # of version 0: (2,4), tau = 1, mean 1/2
            ((0,), [6, 4]),  # of version 1: (2,4), tau = 0, mean 1/3; the weighted mean is (2,4)
            ((1, 0), approx([0, 8 / 3])),  # (8,0), tau = 2, mean 1; (2,4), tau = 1, mean 1/2; ((8,0) + (1,2))/1.5
        ),
        delta=2,
    ),
    "fedstaleweight, 1 added": Hand(
        FedStaleWeight(step_size=0.5, added=1.0),
        (
            ((0, 1), [3, 6]),  # weights 1 and 1: mean of (2,4) and (8,0)
            # (2,4), tau = 1, weight 1/2 + 1; (3,6) - (3.5,3), tau = 0, weight 1/3 + 1: ((3,6) + (-2/3,4))/(17/6)
            ((0, 0), approx([3 - 14 / 17, 6 - 60 / 17])),
        ),
        delta=2,
    ),
    "server-momentum": Hand(
        ServerMomentum(step_size=0.5, server_step_size=0.5, momentum=0.5),
        (
            ((0, 0), [7, 6]),  # (2,4) twice; m = (2,4)
            ((1, 0), [4, 4]),  # stale (8,0) and (2,4), mean (5,2); m = (1,2) + (5,2)
            ((0, 1), [0.375, 2.5], (9, 3)),  # (1.5,3) and (7,-1), mean (4.25,1); m = (3,2) + (4.25,1)
        ),
        delta=2,
    ),
    "server-adam": Hand(
        ServerAdam(step_size=0.5, server_step_size=1.0, beta1=0.5, beta2=0.5, epsilon=1.0),
        (
            ((0, 0), approx(ADAM)),  # mean (2,4); m = (1,2), v = (2,8)
            # stale (8,0) and (2,4), mean (5,2); m = (0.5,1) + (2.5,1), v = (1,4) + (12.5,2)
            ((1, 0), approx([ADAM[0] - 3 / (sqrt(13.5) + 1), ADAM[1] - 2 / (sqrt(6) + 1)])),
        ),
        delta=2,
    ),
    "fadas": Hand(  # the third update is 2 versions old, beyond tau_c = 1
        Fadas(step_size=0.5, server_step_size=0.75, beta1=0.5, beta2=0.5, epsilon=1.0, delay_threshold=1),
        (
            ((0,), approx(FADAS)),  # (2,4); m = (1,2), v = (2,8)
            ((0,), approx(FADAS_2)),  # (2,4) of version 0; m = (1.5,3), v = (3,12)
            # (8,0) of version 0; m = (4.75,1.5), v = (33.5,6), greatest (33.5,12); min(0.75, 1/2)
            ((1,), approx([FADAS_2[0] - 0.5 * 4.75 / (sqrt(33.5) + 1), FADAS_2[1] - 0.5 * 1.5 / (sqrt(12) + 1)])),
        ),
    ),
    # ------------------------------------------------------------------------------------------------ mixing
    "fedasync": Hand(  # a step at each arrival, whatever Delta is; a = 1/2 and s(tau) = 1/(1 + tau)
        FedAsync(step_size=0.5, mixing=0.5, exponent=1.0),
        (
            ((0,), [7, 6], (2, 1), ([7, 6], 1, 2)),  # (8,8) -> (6,4), fresh: halfway; the reply leaves after the step
            ((0,), [6.25, 4.5], (4, 2), ([6.25, 4.5], 2, 4)),  # (7,6) -> (5.5,3), fresh: halfway
            ((1,), approx([6.25 * 5 / 6, 4.5 * 5 / 6 + 8 / 6]), (6, 3)),  # (8,8) -> (0,8), tau = 2: 1/6 of the way
        ),
        delta=3,
    ),
    "fedasync, prox": Hand(
        # at (6,4) the gradient is (2,4), and the term (6,4) - (8,8) makes it 0: x_i = (6,4), not (5,2)
        FedAsync(step_size=0.5, mixing=0.5, prox=1.0), (((0,), [7, 6]),), local_steps=2,
    ),
    "asyncfeded": Hand(  # lambda = epsilon = 1; K_i changes by ⌊3 - gamma⌋ and is 4 at most
        AsyncFedEd(step_size=0.5, most_steps=4),
        (
            ((0,), [6, 4], (2, 1), ([6, 4], 1, 2)),  # (8,8) -> (6,4), gamma = 0: the whole update; K_0 = 1 + 3
            ((1,), approx([6 - 8 * SLOWED, 4])),  # (8,8) -> (0,8)
            # (6,4) -> (5,2) -> (4.5,1) -> (4.25,0.5) -> (4.125,0.25): D = (1.875,3.75)
            ((0,), approx([6 - 8 * SLOWED - 1.875 * NEARLY, 4 - 3.75 * NEARLY]), (6, 3)),
        ),
        delta=3,
    ),
    # ------------------------------------------------------------------------------------------------ memory
    "ace": Hand(Ace(step_size=0.5), STEP_EACH),
    "ia2sgd": Hand(Ia2Sgd(step_size=0.5), STEP_EACH),
    "dude, a step for each arrival": Hand(Dude(step_size=0.5, steps="arrivals"), STEP_EACH),
    "afa-cs, as ace": Hand(AfaCs(step_size=0.5, eta="alpha", steps="arrivals"), STEP_EACH),
    "dude": Hand(
        Dude(step_size=0.5),
        (
            ((0, 0), [8, 8], (2, 0)),  # G_0 = (4,8) twice; the criterion is met, but client 1 is awaited
            ((1,), [3, 6], (4, 1)),  # G_1 = (16,0), mean (10,4)
            ((0,), [3, 6], (5, 1), ([3, 6], 1, 5)),  # stale: (4,8) again; one update since the step
            ((0,), [-0.75, 4.5], (7, 2), ([-0.75, 4.5], 2, 7)),  # G_0 = (-1,6), sum (15,6), mean (7.5,3)
        ),
        delta=2,
    ),
    "afa-cs": Hand(  # G is the mean of the K gradients of a round; eta is left out: alpha·M = 1
        AfaCs(step_size=0.5),
        (
            (Made(0, 1), [8, 8]),  # (8,8) -> (6,4): G_0 = (2,4)/(0.5·1)
            (Made(1, 2), [2, 4], (3, 1)),  # (8,8) -> (0,8) -> (0,8): G_1 = (8,0)/(0.5·2); mean (6,4)
            (Made(0, 2), [-3.5, 1]),  # (8,8) -> (6,4) -> (5,2): G_0 = (3,6); sum (11,6), mean (5.5,3)
            (Made(1, 1), [-7, 0]),  # (2,4) -> (0,6): G_1 = (2,-2)/0.5; sum (7,2), mean (3.5,1)
        ),
        local_steps=2,
    ),
    "aced": Hand(
        Aced(step_size=0.5, max_delay=1),
        (
            ((0, 1), [3, 6], (3, 1)),  # G_0 = (4,8), G_1 = (16,0); mean (10,4)
            ((0,), [-2, 4]),  # stale: (4,8); entry 1 is one step old and counts: mean (10,4)
            ((0,), [1, 2]),  # G_0 = (-6,4); entry 1 is two steps old: mean (-6,4)
            ((1,), [1, 1.5], (9, 4), ([1, 1.5], 4, 9)),  # from (3,6): G_1 = (6,-2); entry 0 is one step old: mean (0,1)
        ),
    ),
    "ca2fl": Hand(
        Ca2fl(step_size=0.5, server_step_size=0.5),
        (
            ((0,), [8, 8], (1, 0), ([8, 8], 0, 1)),  # d_0 = (-2,-4) is sent whole
            ((0,), [7.5, 7], (3, 1)),  # d_0 - h_0 = 0; v = 0 + (-1,-2); h = (-2,-4)/2
            ((1, 0), [5, 6]),  # stale: d_1 = (-8,0) and 0; v = (-1,-2) + (-4,0); h = (-5,-2)
            # from (7.5,7): d_0 = (-1.75,-3.5), sent is (0.25,0.5); d_1 = (-7.5,0.5), sent is (0.5,0.5);
            # v = (-5,-2) + (0.375,0.5)
            ((0, 1), [2.6875, 5.25]),
        ),
        delta=2,
    ),
    "afa-cd": Hand(
        AfaCd(step_size=0.5),
        (
            (Made(0, 1), [8, 8], (1, 0), ([8, 8], 0, 1)),  # G_0 = (4,8)
            (Made(0, 2), [4.5, 1], (3, 1), ([4.5, 1], 1, 3)),  # (3,6); mean (3.5,7), eta = 1; client 1 has no say
            (Made(1, 1), [4.5, 1]),  # stale: G_1 = (16,0)
            (Made(0, 1), [-3.75, 0.5]),  # from (4.5,1): G_0 = (0.5,1); mean (8.25,0.5)
        ),
        delta=2, local_steps=2,
    ),
    "mifa": Hand(
        Mifa(step_size=0.5, server_step_size=1.0),
        (
            ((0,), [8, 8]),  # D_0 = (2,4); client 0 is free until the next round
            (CLOCK, [8, 8], (1, 0)),  # client 1 is awaited
            ((1,), [8, 8], (2, 0)),  # D_1 = (8,0)
            (CLOCK, [3, 6], (3, 1), ([3, 6], 1, 3)),  # mean (5,2)
            ((0,), [3, 6]),  # (3,6) -> (3.5,3): D_0 = (-0.5,3)
            (CLOCK, [-0.75, 4.5], (5, 2), ([-0.75, 4.5], 2, 5)),  # client 1 stands in with (8,0): mean (3.75,1.5)
            ((1,), [-0.75, 4.5]),  # (3,6) -> (0,7): D_1 = (3,-1)
            (CLOCK, [-2, 3.5]),  # client 0 stands in with (-0.5,3): mean (1.25,1)
        ),
        delta=NEVER,
    ),
    # ------------------------------------------------------------------------------------------------ local work
    "asynccomm-sgd": Hand(
        AsyncCommSgd(step_size=0.5),
        (
            (Made(0, 1), [7, 6], (2, 1), ([7, 6], 1, 2)),  # (8,8) -> (6,4); the reply carries the new x
            (Made(1, 2), [3, 6], (4, 2), ([3, 6], 2, 4)),  # (8,8) -> (0,8) -> (0,8)
            (Made(0, 3), [1.6875, 3.375]),  # stale: (7,6) -> (5.5,3) -> (4.75,1.5) -> (4.375,0.75)
            (Made(1, 0), [1.6875, 3.375], (8, 4)),  # no tick has passed: a step that changes nothing
        ),
        local_steps=3,
    ),
    "quafl": Hand(
        QuAfl(step_size=0.5, clients_per_round=1, period_s=1.0),
        (
            # Y_0 = (6,4); the order has the model from before the step: client 0 continues from (8,8)/2 + (6,4)/2
            (Contacted(0, 1), [7, 6], (2, 1), ([8, 8], 0, 1)),
            (Contacted(1, 2), [3.5, 7]),  # (8,8) -> (0,8) -> (0,8); client 1 continues from the same
            (Contacted(1, 1), [1.75, 7.25]),  # (3.5,7) -> (0,7.5)
            (Contacted(0, 2), [3.25, 4.375], (8, 4)),  # (7,6) -> (5.5,3) -> (4.75,1.5)
        ),
        local_steps=2, known={"seed": 10},
    ),
    "favas": Hand(
        Favas(step_size=0.5, clients_per_round=1, period_s=1.0, expected_steps=(2.0, 4.0)),
        (
            (Contacted(0, 0), [8, 8]),  # a client that has made no step sends what it was sent
            (Contacted(1, 2), [7, 8]),  # (8,8) -> (0,8): (-8,0)/4: (6,8)
            (Contacted(1, 1), [6.125, 8]),  # (7,8) -> (0,8): (-7,0)/4: (5.25,8)
            (Contacted(0, 1), [6.5625, 7], (8, 4), ([6.5625, 7], 4, 8)),  # (8,8) -> (6,4): (-2,-4)/2: (7,6)
        ),
        local_steps=2, known={"seed": 10},
    ),
    # ------------------------------------------------------------------------------------------------ asynchronous SGD
    "async-sgd": Hand(
        AsyncSgd(step_size=0.5),
        (
            ((0,), [6, 4], (2, 1), ([6, 4], 1, 2)),  # (8,8) - (2,4); the reply carries the new model
            ((0,), [5, 2], (4, 2), ([5, 2], 2, 4)),  # (6,4) - (1,2)
            ((1,), [-3, 2], (6, 3), ([-3, 2], 3, 6)),  # two versions old: (8,0) from (8,8)
            ((0,), [-3.5, 1], (8, 4)),  # one version old: (0.5,1) from (5,2)
        ),
    ),
    "async-sgd, M = 2": Hand(AsyncSgd(step_size=0.5), (((0,), [5, 2]), ((1,), [-3, 2])), local_steps=2),
    **{
        # (6,4), (5,2), (4.5,1), (4.25,0.5), then (8,0) from (8,8), four versions old; one that is dropped is a step too
        f"async-sgd, {what}": Hand(
            AsyncSgd(step_size=0.5, **keys), (((0, 0, 0, 0), [4.25, 0.5]), ((1,), end, (10, 5), (end, 5, 10)))
        )
        for what, keys, end in (
            ("adaptive", {"step": "adaptive"}, [0.25, 0.5]),  # 2/max(2, 4) of (8,0)
            ("4 is not beyond 4", {"step": "threshold", "threshold": 4}, [-3.75, 0.5]),
            ("dropped", {"step": "threshold", "threshold": 3}, [4.25, 0.5]),
            # min(1/2, 1/(4·1·4)) = 1/16, an eighth of gamma
            ("shortened", {"step": "threshold", "threshold": 3, "smoothness": 1.0}, [3.25, 0.5]),
            ("not shortened", {"step": "threshold", "threshold": 3, "smoothness": 0.01}, [-3.75, 0.5]),  # 6.25 > gamma
        )
    },
    "ringmaster": Hand(
        Ringmaster(step_size=0.5, max_delay=2),
        (
            ((0, 0), [5, 2]),  # (8,8) - (2,4) = (6,4), (6,4) - (1,2)
            ((1,), [5, 2], (5, 2), ([5, 2], 2, 5)),  # two versions old: ignored, and no step
            ((0, 1), [-0.5, 4]),  # (5,2) - (0.5,1); one version old: (5,-3) from (5,2)
        ),
    ),
    "ringmaster, stops": Hand(
        Ringmaster(step_size=0.5, max_delay=2, stops=True),
        (
            ((0, 0), [5, 2], (4, 2)),  # client 1, which worked on version 0, is stopped and starts again from (5,2)
            ((0, 1), [-0.5, 4], (8, 4), ([-0.5, 4], 4, 8)),  # (5,2) - (0.5,1); one version old: (5,-3) from (5,2)
        ),
    ),
    "rennala": Hand(
        Rennala(step_size=0.5, batch=2),
        (
            ((0,), [8, 8], (1, 0), ([8, 8], 0, 1)),  # (2,4) is the first of two
            ((0,), [6, 4], (3, 1), ([6, 4], 1, 3)),  # (2,4) again, and the reply carries the new model
            ((1,), [6, 4], (4, 1), ([6, 4], 1, 4)),  # began at version 0: ignored
            ((1, 0), [2.5, 4]),  # (6,-2) and (1,2)
        ),
    ),
    "malenia": Hand(  # a harmonic mean of 2 is wanted
        Malenia(step_size=0.5, batch=4),
        (
            ((0, 0, 0, 1), [8, 8], (4, 0)),  # three times (2,4), once (8,0): 2/(1/3 + 1/1) = 1.5
            ((1,), [3, 6], (6, 1), ([3, 6], 1, 6)),  # 2/(1/3 + 1/2) = 2.4: (8,8) - ((2,4) + (8,0))/2
            ((0,), [3, 6]),  # began at version 0: ignored
            # twice (-0.5,3) from (3,6), twice (3,-1): 2/(1/2 + 1/2) = 2 is enough
            ((0, 0, 1, 1), [1.75, 5]),
        ),
    ),
    "ringleader": Hand(
        Ringleader(step_size=0.5),
        (
            ((0, 0), [8, 8], (2, 0), ([8, 8], 0, 2)),  # phase 1: twice (2,4), no step
            ((1,), [3, 6], (4, 1), ([3, 6], 1, 4)),  # (8,0) completes the table: (8,8) - ((2,4) + (8,0))/2
            ((1,), [3, 6], (5, 1), ([3, 6], 1, 5)),  # (3,-1) from (3,6) is for the next table
            ((0,), [-2, 4], (7, 2), ([-2, 4], 2, 7)),  # client 0's own step: its mean is still (2,4)
            ((1,), [-2, 4], (8, 2), ([3, 6], 1, 8)),  # phase 1 of round 2: (3,-1) from (3,6) once more
            ((0,), [-2, 3.5]),  # (-3,2) from (-2,4) completes the table: (-2,4) - ((-3,2) + (3,-1))/2
            # client 1's own step, with gradients at version 1, two versions old: (-2,3.5) - (0,0.5)
            ((1,), [-2, 3], (12, 4), ([-2, 3], 4, 12)),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HANDS)
def test_trajectory_by_hand(name: str) -> None:
    hand = HANDS[name]
    problem = two_clients(hand.local_steps) if hand.clients == 2 else four_clients()
    method = hand.settings.build(inputs(hand.clients, local_steps=hand.local_steps, **hand.known))
    assert method.name == hand.settings.name
    table = Table(method, problem, hand.delta, stepwise=method.interrupts)
    last = 0
    for event, model, *more in hand.rows:
        match event:
            case "the clock":
                table.time_s += 1.0
                table.conductor.timer(table.time_s)
            case Made(last, steps):
                table.deliver(last, made=steps)
            case Contacted(last, steps):
                before = len(table.contacted)
                table.wake()
                assert table.contacted[before:] == [last]
                table.deliver(last, made=steps, time_s=table.time_s)
            case clients:
                table.deliver(*clients)
                last = clients[-1]
        assert table.model() == model
        if more:
            assert table.counters() == more[0]
        if len(more) > 1:
            assert table.holds(last) == more[1]
