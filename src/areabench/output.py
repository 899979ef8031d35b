"""Where the answer of a reading command goes: words, in colour on a terminal, or JSON for a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from areabench.as_json import to_json
from areabench.errors import harmless

Colours = Literal["standard", "256", "truecolor"]


@dataclass(frozen=True)
class Output:
    """How to answer; the command line decides. Piped words are the same as on a terminal, without colours."""

    as_json: bool = False
    colours: Colours | None = None  # how many a terminal has; None: words go out as they are
    is_terminal: bool = False  # one that a page can be written over on

    def answer(self, words: Callable[[], str], record: Callable[[], Any]) -> None:
        """Print one of both."""
        if self.as_json:
            sys.stdout.write(to_json(record()))
        else:
            self.words(words())

    def words(self, text: str) -> None:
        """Print a text that a stranger's file may have part in."""
        shown = harmless(text)
        if self.colours is None:
            sys.stdout.write(shown)
            return
        from areabench.painting import write_painted  # with rich, which only a terminal needs

        write_painted(shown, self.colours)

    def remark(self, text: str) -> None:
        """Print a line beside the answer, such as where a figure went; JSON stands alone."""
        if not self.as_json:
            print(text)
