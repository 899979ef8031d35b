"""What the paper's theory says about an experiment, in one screen: constants, step sizes, server rate, assumptions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from areabench.theory_findings import Findings, Theorem1, Theorem2

Row = tuple[str, str]  # label and text


def findings_text(found: Findings) -> str:
    """The whole screen."""
    what = f"{found.problem}, n = {found.clients}, M = {found.local_steps}, {found.method}"
    rows = [("experiment", what), _events(found)]
    rows += [*_theorem1(found.theorem1), *_theorem2(found.theorem2), *_server(found)]
    rows += [("not satisfied" if not number else "", text) for number, text in enumerate(found.not_satisfied)]
    rows += _suggestion(found)
    return "".join(f"{label:<14}{text}\n" for label, text in rows)


def _events(found: Findings) -> Row:
    events = found.events
    where = f"client {events.slowest}" if events.slowest >= 0 else "the server"
    return (
        "events",
        f"p_min = {events.p_min:.4g} ({where}), p_s = {events.p_s:.4g}, q_bar = {events.q_bar:.4g}, "
        f"r_p = {events.r_p:.4g}; {events.source}",
    )


def _theorem1(found: Theorem1 | None) -> Iterator[Row]:
    if found is None:
        yield "theorem 1", "does not apply: the problem is not known to be smooth and strongly convex"
        return
    words = f"mu = {found.mu:.4g}, L = {found.L:.4g}, kappa = {found.kappa:.4g}, gamma = {found.gamma:.4g}"
    yield "theorem 1", f"{words}, delta = {found.delta:.4g}{_noise(found)}"
    yield "", f"alpha_k = {found.c:.6g}/(k + {found.d:.6g}), from D = {found.D:.4g} ({found.limited_by})"
    if not math.isnan(found.closed_bound):
        yield "", f"E|x_s,K - x*|² <= {_bounds(found)} at K = {found.iterations:,}"


def _noise(found: Theorem1) -> str:
    if found.awaits_solution:
        return "; --solve adds sigma, zeta and the bound"
    return "" if math.isnan(found.sigma) else f", sigma = {found.sigma:.4g}, zeta = {found.zeta:.4g}"


def _bounds(found: Theorem1) -> str:
    recursive = found.recursion_bound
    proof = "" if math.isnan(recursive) else f", {recursive:.4g} (recursion of the proof)"
    return f"{found.closed_bound:.4g} (closed form){proof}"


def _theorem2(found: Theorem2 | None) -> Iterator[Row]:
    if found is None:
        yield "theorem 2", "does not apply: the problem is not known to be Lipschitz"
        return
    if found.awaits_solution:
        yield "theorem 2", "--solve adds its constants, step size and bound, which need |x_s,0 - x*|"
        return
    distance = f"|x_s,0 - x*| = {found.start_distance:.4g}{' (estimated)' * found.estimated}"
    yield "theorem 2", f"B = {found.B:.4g}, sigma = {found.sigma:.4g}, {distance}"
    yield "", f"alpha = {found.alpha:.4g} for K = {found.iterations:,}; E[f(average) - f*] <= {found.bound:.4g}"


def _server(found: Findings) -> Iterator[Row]:
    best = found.server
    yield (
        "server rate",
        f"lambda_s* = {best.rate:.4g} 1/s: after {best.whole_updates} updates (Delta* = {best.updates:.3g}), or every "
        f"{best.period_s:.3g} s; now {best.now:.4g} 1/s",
    )
    yield "", "(the least bound of Theorem 2 for a number of iterations; within a horizon a faster server is no worse)"


def _suggestion(found: Findings) -> Iterator[Row]:
    if found.suggestion is None:
        return
    schedule, best = found.suggestion.schedule.name, found.server.rate
    criterion = "the server's criterion as it is" if found.keeps_criterion else f"the server at {best:.4g} 1/s"
    yield "suggestion", f'schedule "{schedule}", {found.suggested_steps}; {criterion}; --write FILE.toml writes it'
