"""The page and the line of a watch: bars, charts, folding, and sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console, Group, RenderableType

from areabench.views.watch.frame import ClientFrame, Frame, Staleness, UpdateRates
from areabench.views.watch.quality import Quality
from areabench.views.watch.screen import BLOCKS, PLAIN, WatchPage, client_bars, log_line, plain_page

FRAME = Frame(
    file="run.h5", state="running", reason="", name="demo", method="area", step_size=10.0, setting="n = 2, M = 1",
    transport="mpi", ranks=3, time_s=5.0, horizon_s=10.0, iterations=None, progress=0.5, speed=2.0, left_s=2.5,
    updates=40, server_steps=20, discarded=0, refused=1, lost=(1,), rates=UpdateRates(7.5, 8.0, 10.0),
    staleness=Staleness(1.5, (1, 4, 2, 0, 1)), snapshots=51,
    quality=Quality(4.0, 16, 0.25, 87.5, math.nan, "watch"), quality_remark="",
    clients=(ClientFrame(0, 30, 25.0, 12.0, False), ClientFrame(1, 5, 25.0, 12.0, True)), counted=True,
    size_bytes=2_400_000, age_s=0.42,
)  # fmt: skip


def lines_of(shown: RenderableType, columns: int, rows: int = 100) -> list[str]:
    """What a terminal of this size shows."""
    terminal = Console(width=columns, height=rows, color_system=None)
    with terminal.capture() as captured:
        terminal.print(shown)
    return [line.rstrip() for line in captured.get().splitlines()]


def bars(clients: list[ClientFrame], columns: int, rows: int) -> list[str]:
    return lines_of(Group(*client_bars(clients, columns, rows, PLAIN)), 100)


def test_a_page_in_words() -> None:
    assert plain_page(FRAME) == (
        "run.h5\n"
        "experiment  demo: area, alpha = 10, n = 2, M = 1\n"
        "state       running in real time, 3 ranks\n"
        "time        ###############............... 50 %  5.00 of 10 s  2 s per second  2 s left\n"
        "updates     40: 7.5/s lately, 8/s overall, of 10/s nominal; 20 server steps\n"
        "staleness   1.50 versions on average  0 :#= : 4  (99 %; 4 at most)\n"
        "quality     loss 0.2500, accuracy 87.50 % at 4 s, version 16\n"
        "faults      1 update refused; 1 client lost: 1\n"
        "file        2 MB, 51 snapshots, written 0.4 s ago\n"
        "clients     updates used of those expected by now; 1 of 2 served less than chance allows\n"
        "0 ##########  120 %   1 ##........   lost\n"
    )


def test_a_line_in_words() -> None:
    assert log_line(FRAME) == (
        "running     5.0 / 10 s  40 updates  7.5 of 10/s  staleness 1.50  loss 0.2500, accuracy 87.50 %  "
        "1 update refused; 1 client lost: 1  2 MB"
    )


def test_what_is_not_known_is_left_out() -> None:
    bare = replace(
        FRAME, quality=None, quality_remark="being evaluated", rates=UpdateRates(math.nan, math.nan, math.nan),
        updates=0, staleness=Staleness(math.nan, ()), refused=0, lost=(), progress=None, left_s=math.nan,
        speed=math.nan,
    )  # fmt: skip
    lines = plain_page(bare).splitlines()
    assert "time        5.00 of 10 s" in lines
    assert "updates     0; 20 server steps" in lines
    assert "quality     - (being evaluated)" in lines
    assert not any(line.startswith("faults") for line in lines)
    assert log_line(bare) == "running     5.0 / 10 s  0 updates  2 MB"


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("rows", [1, 5, 12, 24, 60])
@pytest.mark.parametrize("count", [1, 7, 128])
def test_a_page_fits_its_terminal(columns: int, rows: int, count: int) -> None:
    clients = tuple(ClientFrame(number, number, 100.0, 0.0, False) for number in range(count))
    lines = lines_of(WatchPage(replace(FRAME, clients=clients), BLOCKS), columns, rows)
    assert lines[0] == "run.h5"
    assert len(lines) <= rows
    assert all(len(line) <= columns for line in lines)


def test_what_a_stranger_writes_does_not_reach_the_terminal() -> None:
    assert lines_of(WatchPage(replace(FRAME, file="\x1b[2J\x07done"), BLOCKS), 80)[0] == "\\x1b[2J\\x07done"


def test_many_clients_are_folded_the_worst_first() -> None:
    clients = [ClientFrame(number, 100 - number, 100.0, 0.0, number == 3) for number in range(10)]
    assert bars(clients, 21 + 3 + 21, 5) == [
        "clients     updates used of those expected by now, the worst first",
        "3 ##########   lost   7 #########.   93 %",
        "9 #########.   91 %   6 #########.   94 %",
        "8 #########.   92 %   5 ##########   95 %",
        "and 4 more, 96 to 100 %",
    ]


@pytest.mark.parametrize(("rows", "lines"), [(5, ["0 ##########  100 %   1 ##########   99 %"]), (1, []), (-3, [])])
def test_few_clients_stay_in_their_order(rows: int, lines: list[str]) -> None:
    clients = [ClientFrame(number, 100 - number, 100.0, 0.0, False) for number in range(2)]
    assert bars(clients, 80, rows)[1:] == lines


def test_bars_and_charts() -> None:
    full = [PLAIN.bar(share, 10, "")[0] for share in (-1.0, 0.0, 0.26, 1.0, 7.0, math.nan)]
    assert full == [("#" * count, "") for count in (0, 0, 3, 10, 10, 0)]
    assert PLAIN.chart([0, 7, 1, 0], 10) == " #. "
    assert PLAIN.chart([1, 0, 7, 7], 2) == ".#"  # 1 of 14 is more than nothing
    assert PLAIN.chart([], 10) == ""
    assert BLOCKS.chart([1000, 1], 10) == "█▂"
