"""The figures of the studies as functions of a sweep, for notebooks; each returns a matplotlib figure."""

from __future__ import annotations

from matplotlib.figure import Figure
from studies.limits import draw_limits, limit_of
from studies.points import points_of
from studies.rates import draw_theorem, theorem1_curve, theorem2_curves
from studies.server_rates import draw_server_rates, server_rates

from areabench import Sweep
from areabench.views.figures.style import Width, inches


def theorem1(sweep: Sweep, *, width: Width = "page", titled: bool = True) -> Figure:
    """E|x_s,K - x*|² of a sweep with Theorem 1's step sizes over K: measured, slope, and both bounds."""
    curves = [theorem1_curve(point) for point in points_of(sweep)]
    return _entitled(draw_theorem(curves, 1, width_in=inches(width)), titled)


def theorem2(sweep: Sweep, *, width: Width = "page", titled: bool = True) -> Figure:
    """E[f(average) - f*] of a sweep with Theorem 2's step size over K: measured, slope, and the bound."""
    return _entitled(draw_theorem(theorem2_curves(points_of(sweep)), 2, width_in=inches(width)), titled)


def limits(sweep: Sweep, *, width: Width = "page", titled: bool = True) -> Figure:
    """How far from the minimiser methods end on quadratics, over the ratio of the fastest to the slowest rate."""
    points = points_of(sweep)
    drawn = draw_limits([limit_of(point) for point in points], points, width_in=inches(width))
    return _entitled(drawn, titled)


def server_rate(sweep: Sweep, *, width: Width = "page", titled: bool = True) -> Figure:
    """The gap after a number of iterations over the server's rate, measured and by Theorem 2."""
    return _entitled(draw_server_rates(server_rates(points_of(sweep)), width_in=inches(width)), titled)


def _entitled(figure: Figure, titled: bool) -> Figure:
    if not titled:
        figure.suptitle("").set_in_layout(False)
    return figure
