"""What finds and executes the commands, on small documents."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.documents import documents
from tests.documents.documents import Step, blocks_of, prose_of, steps_of
from tests.documents.exceptions import UNKNOWN, exit_codes_of, is_known, reason_not_to_execute
from tests.documents.workplace import Workplace, carry_out, shortened

PAGE = """\
# A page

```sh
make demo   # first
# a comment alone
.venv/bin/areabench sweep FILE \\
  --trials 1
```

```text
make nothing of this
```

- in a list:

  ```python
  print(1)
  ```

```
.venv/bin/areabench show RUN.h5
```

```toml
# own.toml
seed = 1
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    return "page.md"


def step(text: str) -> Step:
    return Step("page.md", 1, "command", text)


def test_steps_are_found_in_order_with_their_lines(page: str) -> None:
    assert [(each.line, each.kind) for each in steps_of(page)] == [
        (4, "command"), (6, "command"), (17, "python"), (21, "command"), (25, "file"),
    ]  # fmt: skip
    assert steps_of(page)[1].text == ".venv/bin/areabench sweep FILE \\\n  --trials 1"
    assert steps_of(page)[2].text == "print(1)\n"
    assert steps_of(page)[4].name == "own.toml"


def test_blocks_and_prose_are_separated(page: str) -> None:
    assert [block.language for block in blocks_of(page)] == ["sh", "text", "python", "", "toml"]
    assert prose_of(page).split() == ["#", "A", "page", "-", "in", "a", "list:"]


def test_what_is_not_executed_has_a_reason() -> None:
    assert reason_not_to_execute("make soak") == "a measurement, which wants the machine for itself"
    assert reason_not_to_execute("sbatch paper.sh").startswith("needs a cluster")
    assert reason_not_to_execute("make demo") == ""
    assert reason_not_to_execute("make testament") == ""


def test_unknown_programs_fail(tmp_path: Path) -> None:
    assert is_known("NO_COLOR=1 .venv/bin/areabench show RUN.h5")
    assert not is_known("areabench show RUN.h5")
    assert carry_out(step("areabench show RUN.h5"), tmp_path).output == UNKNOWN


def test_exit_codes_are_those_that_are_expected() -> None:
    assert exit_codes_of(".venv/bin/areabench show RUN.h5") == {0}
    assert exit_codes_of(".venv/bin/areabench compare A.h5 B.h5") == {0, 1}
    assert exit_codes_of(".venv/bin/areabench simulate A.toml -o A.h5   # stop it with Ctrl-C") == {4, 130}


def test_a_command_that_is_not_executed_is_looked_at(tmp_path: Path) -> None:
    assert carry_out(step("sbatch paper.sh"), tmp_path).code != 0
    (tmp_path / "paper.sh").write_text("")
    assert carry_out(step("sbatch paper.sh"), tmp_path).code == 0
    assert carry_out(step("srun -n 3 .venv/bin/areabench sweep --no-such-option"), tmp_path).code != 0


def test_a_step_comes_after_those_before_it_and_once(tmp_path: Path) -> None:
    steps = [Step("page.md", line, "command", f"eval 'echo {line} >> lines'") for line in (1, 2, 3)]
    place = Workplace(tmp_path, steps)
    assert place.reach(steps[1]).code == 0
    assert place.reach(steps[0]).code == 0
    assert (tmp_path / "lines").read_text().split() == ["1", "2"]


def test_experiments_are_shortened() -> None:
    text = "horizon_s = 15.0  # s\ncount = 128\nlocal_steps = 50\ntrials = 10\niterations = 7000\ninterval_s = 0.1"
    assert tomllib.loads(shortened(text)) == {
        "horizon_s": 1.0, "count": 8, "local_steps": 5, "trials": 2, "iterations": 500, "interval_s": 0.1,
    }  # fmt: skip
    assert shortened("count = 8", "demo.toml") == "count = 4"
    assert shortened("values = [40.0, 1.0]\nrate = 40.0", "quadratic.toml") == "values = [2, 0.05]\nrate = 2.0"
