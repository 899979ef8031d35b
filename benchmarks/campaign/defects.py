"""areabench with a defect on one rank: it sends something wrong or sleeps, or dies before the run begins."""

from __future__ import annotations

from benchmarks.campaign.cases import Case
from benchmarks.campaign.kinds import AT_START, MPI

MODULE = "broken"  # patches what a client sends, and then is areabench
FIRST_MODULE = "sitecustomize"  # which Python loads before all others
MARK = "defect.mark"  # the file that says when the defect has shown: a line with round and Unix time each time

_FRAME = '''"""areabench with a defect."""
import os
import time
from pathlib import Path

from areabench.cli import main as cli

RANK = int(next((os.environ[name] for name in {variables!r} if name in os.environ), "0"))
ROUND, ALWAYS, AMOUNT, VICTIM = {round}, {always}, {amount!r}, {victim}
seen = 0


def due():
    """Whether the defect shows now; counts the rounds."""
    global seen
    seen += 1
    shows = seen > ROUND if ALWAYS else seen == ROUND + 1
    if shows:
        with Path({mark!r}).open("a") as file:
            file.write(f"{{seen - 1}} {{time.time()}}\\n")
    return shows

{defect}

if __name__ == "__main__":
    cli.entry()
'''
_PAYLOAD = """
from areabench.transports.mpi_worker import MpiWorkerLink

load = MpiWorkerLink.load

def bad(self, client, payload):
    if due():
        payload = payload.copy()
        payload[len(payload) // 2] = AMOUNT
    load(self, client, payload)

if RANK == VICTIM + 1:
    MpiWorkerLink.load = bad
"""
_HEADER = """
from areabench.transports import mpi_worker

pack, send = mpi_worker.pack_update, mpi_worker.MpiWorkerLink.send

def bad_pack(buffer, header, *length):
    pack(buffer, {header}, *length)
    {more}

def bad_send(self, header):
    mpi_worker.pack_update = bad_pack if due() else pack
    send(self, header)
    mpi_worker.pack_update = pack  # memories, which the server also asks for, are sent without a defect

if RANK == VICTIM + 1:
    mpi_worker.MpiWorkerLink.send = bad_send
"""
_LENGTH = """
import numpy
from mpi4py import MPI

from areabench.engine.messages import HEADER_BYTES, Tag, pack_update
from areabench.transports.mpi_worker import MpiWorkerLink

send = MpiWorkerLink.send

def bad(self, header):
    if not due():
        return send(self, header)
    line = self._sends[header.client]
    whole = line.whole
    message = numpy.zeros(max(HEADER_BYTES, whole.size + AMOUNT), numpy.uint8)
    pack_update(line.header, header, message.size - HEADER_BYTES)
    kept = min(whole.size, message.size)
    message[:kept] = whole[:kept]
    self._comm.Send([message, MPI.BYTE], dest=0, tag=Tag.UPDATE)

if RANK == VICTIM + 1:
    MpiWorkerLink.send = bad
"""
_SLOW = """
from areabench.engine.client import Client

work = Client.work

def slow(self, *given):
    if due():
        time.sleep(AMOUNT)
    return work(self, *given)

if RANK == VICTIM + 1:
    Client.work = slow
"""
_GRADIENT = """
import numpy

from areabench.problems.{module} import {local}

descend = {local}.descend
victims = []  # the objects in the order in which they first work

def bad(self, *given, **named):
    if self not in victims:
        victims.append(self)
    result = descend(self, *given, **named)
    return numpy.full_like(result, numpy.nan) if victims.index(self) == VICTIM and due() else result

{local}.descend = bad
"""
_LOCALS = {"quadratic": ("quadratic", "LocalQuadratic"), "logistic": ("logistic", "LocalLogistic")}
_HEADERS = {
    "round": ("header._replace(round=header.round + 5)", "pass"),
    "base": ("header._replace(base_version=header.base_version + 3)", "pass"),
    "client": ("header._replace(client=10_000)", "pass"),
    "protocol": ("header", "buffer[:4] = (99).to_bytes(4, 'little')"),
}
_AMOUNTS = {"nan": "float('nan')", "inf": "float('-inf')"}


_START = '''"""A rank that dies before the run begins."""
import os
import time
from pathlib import Path


def die():
    Path({mark!r}).write_text(f"0 {{time.time()}}\\n")
    {death}


if next((os.environ[name] for name in {variables!r} if name in os.environ), "") == "{rank}":
    {moment}
'''
_MOMENTS = {
    AT_START[0]: "die()",
    # The first meeting of all ranks asks for it.
    AT_START[1]: "import areabench.host\n    areabench.host.this_process = die",
}


def start_module(case: Case, variables: tuple[str, ...]) -> str:
    """The text of the module with which a rank is killed, or leaves, before the run begins."""
    death = "os._exit(0)" if case.always else "os.kill(os.getpid(), 9)"
    moment = next(text for when, text in _MOMENTS.items() if case.kind.detail.endswith(when))
    return _START.format(mark=MARK, death=death, variables=variables, rank=case.dying_rank, moment=moment)


def defect_module(case: Case, variables: tuple[str, ...]) -> str:
    """The text of the module for a case."""
    text, amount = _defect(case)
    frame = _FRAME.format(
        variables=variables, round=case.round, always=case.always, amount="AMOUNT_", victim=case.victim, mark=MARK,
        defect=text,
    )  # fmt: skip
    return frame.replace("'AMOUNT_'", amount)


def _defect(case: Case) -> tuple[str, str]:
    """The defect, and how large it is."""
    name = case.kind.detail
    if case.kind.transport != MPI:
        module, local = _LOCALS[case.drawn.problem]
        return _GRADIENT.format(module=module, local=local), "0"
    if name in _HEADERS:
        header, more = _HEADERS[name]
        return _HEADER.format(header=header, more=more), "0"
    if name == "length":
        return _LENGTH, str(case.extra_bytes)
    return (_SLOW, f"{case.pause_s:.3f}") if name == "slow" else (_PAYLOAD, _AMOUNTS[name])
