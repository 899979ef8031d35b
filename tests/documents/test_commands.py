"""Every command and every piece of Python that README and docs show is executed, in order: none goes stale.

`-v` names file, line and command; what is not executed stands in exceptions.py, with the reason.
"""

from __future__ import annotations

import tomllib

import pytest
from tests.documents.documents import ROOT, Step, blocks_of, documents, steps_of
from tests.documents.exceptions import exit_codes_of, reason_not_to_execute
from tests.documents.workplace import LIMIT_S, Workplaces

BLOCKS = [block for document in documents() for block in blocks_of(document)]
FIRST_READ = ("README.md", "docs/getting-started.md")  # executed by every `make test`; the others are long
STEPS = [step for document in documents() for step in steps_of(document)]


STEPS_BY_LENGTH = [
    pytest.param(step, marks=[] if step.document in FIRST_READ else [pytest.mark.long]) for step in STEPS
]


def _name(step: Step) -> str:
    reason = reason_not_to_execute(step.text) if step.kind == "command" else ""
    return " ".join(str(step).split())[:120] + (f" (not executed: {reason})" if reason else "")


@pytest.fixture(scope="session")
def workplaces(tmp_path_factory: pytest.TempPathFactory) -> Workplaces:
    return Workplaces(tmp_path_factory.mktemp("commands"))


@pytest.mark.skipif(not (ROOT / ".venv" / "installed").exists(), reason="needs the .venv that make has made")
@pytest.mark.slow
@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.parametrize("step", STEPS_BY_LENGTH, ids=_name)
def test_what_documents_show_runs(step: Step, workplaces: Workplaces) -> None:
    outcome, codes = workplaces[step.document].reach(step), exit_codes_of(step.text)
    assert outcome.code in codes, f"{step}\nexit code {outcome.code}, expected {sorted(codes)}:\n{outcome.output}"


def test_every_block_says_what_it_is() -> None:
    unsaid = [f"{block.document}:{block.line}" for block in BLOCKS if not block.language]
    assert not unsaid, f"say what is in a block, ```sh for commands, ```text for what they print: {', '.join(unsaid)}"


def test_every_toml_block_is_toml() -> None:
    for block in BLOCKS:
        if block.language == "toml":
            tomllib.loads(block.text)
