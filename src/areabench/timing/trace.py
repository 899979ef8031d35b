"""Delays from a trace: a CSV file lists those of each client."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from areabench.errors import UserError
from areabench.settings.keys import key
from areabench.timing.delays import DelaySettings, Generators, Traces
from areabench.timing.rates import Rates

_HEADER = ["client", "delay_s"]


@dataclass(frozen=True, kw_only=True)
class TraceDelays(DelaySettings):
    """From a CSV file with the columns `client,delay_s`; a client's rows are used in order, then again."""

    name: str = "trace"
    file: str = key("path of the CSV file, relative to the experiment file", path=True)

    @property
    def source(self) -> str | None:
        """The trace."""
        return self.file

    def traces(self, clients: int) -> Traces:
        """As the file lists them."""
        return read_trace(Path(self.file), clients)

    def counts(self, rates: Rates, duration_s: float, traces: Traces) -> Rates | None:
        """From the beginning of the trace, again and again."""
        if not traces:  # its file is missing
            return None
        counts = []
        for trace in traces:
            ends_s = np.cumsum(trace)
            whole, rest_s = divmod(duration_s, ends_s[-1])
            counts.append(whole * len(trace) + np.searchsorted(ends_s, rest_s, side="right"))
        return np.array(counts, dtype=np.float64)

    def durations(self, client: int, rate: float, generator: Generators, traces: Traces) -> Iterator[float]:
        """The trace again and again; unlike itertools.cycle, without a copy of it."""
        while True:
            yield from traces[client]


def read_trace(path: Path, clients: int) -> list[array[float]]:
    """The delays (s) of each client in the order of a CSV file with the header `client,delay_s`."""
    if path.exists() and not path.is_file():  # reading a pipe may wait forever, a device may never end
        raise UserError(f"trace {path}: is not a regular file; check delays.file")
    traces = [array("d") for _ in range(clients)]
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if header != _HEADER:
                shown = ",".join(header)[:80]
                raise UserError(f"trace {path}, line 1: header {shown!r}, expected {','.join(_HEADER)!r}")
            for row in reader:
                if row:  # a blank line is an empty row
                    client, delay_s = _read_row(row, clients, f"trace {path}, line {reader.line_num}")
                    traces[client].append(delay_s)
    except OSError as error:
        raise UserError(f"trace {path}: {error.strerror or error}; check delays.file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"trace {path}: not a CSV text file ({error}); check delays.file") from error
    for client, delays in enumerate(traces):
        if not delays:
            raise UserError(f"trace {path}: no line for client {client} of {clients}; each client needs a delay")
    return traces


def _read_row(row: list[str], clients: int, place: str) -> tuple[int, float]:
    """The client and its delay in one row; `place` begins an error."""
    if len(row) != len(_HEADER):
        raise UserError(f"{place}: {len(row)} columns, expected {len(_HEADER)}: {','.join(_HEADER)}")
    try:
        client = int(row[0])
    except ValueError as error:
        raise UserError(f"{place}: client {row[0][:40]!r} is not a whole number; write 0 to {clients - 1}") from error
    if not 0 <= client < clients:
        raise UserError(f"{place}: unknown client {str(client)[:40]}; write 0 to {clients - 1}, or raise clients.count")
    try:
        delay_s = float(row[1])
    except ValueError as error:
        raise UserError(f"{place}: delay {row[1][:40]!r} is not a number; write seconds, such as 0.1") from error
    if not (math.isfinite(delay_s) and delay_s > 0):
        raise UserError(f"{place}: delay {row[1].strip()} s is not allowed; write a finite number of seconds above 0")
    return client, delay_s
