"""The fenced blocks of all Markdown files, and what of them is to be executed, in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = {"build", "dist", "runs", "node_modules"}
_SHELL = {"sh", "bash", "shell", "console"}
_PROGRAMS = re.compile(r"(\.venv/bin/|make |areabench |mpirun |mpiexec |srun |sbatch |qsub |python |pip )")
_FILE_NAME = re.compile(r"# (?P<name>[\w./-]+\.(toml|py))\b")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line of content."""

    document: str
    line: int
    language: str
    lines: tuple[str, ...]

    @property
    def is_shell(self) -> bool:
        """Whether it holds commands: it says so, or says nothing and begins with a known program."""
        first = next((line for line in self.lines if line.strip() and not line.startswith("#")), "")
        return self.language in _SHELL or (not self.language and _PROGRAMS.match(first) is not None)

    @property
    def file_name(self) -> str:
        """The file that it shows, named by a comment in its first line; empty where it names none."""
        named = _FILE_NAME.match(self.lines[0]) if self.lines else None
        return named["name"] if named and not self.is_shell else ""

    @property
    def text(self) -> str:
        """The whole content."""
        return "".join(f"{line}\n" for line in self.lines)


@dataclass(frozen=True)
class Step:
    """Something to execute: a command, a piece of Python, or a file to save under its `name`."""

    document: str
    line: int
    kind: str  # command, python or file
    text: str
    name: str = ""

    def __str__(self) -> str:
        shown = self.name or self.text.strip().splitlines()[0]
        return f"{self.document}:{self.line}: {shown if self.kind == 'command' else f'{self.kind} {shown}'}"


def documents() -> list[str]:
    """All Markdown files of the repository, README first."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    ours = (path for path in found if not any(part in _NOT_OURS or part.startswith(".") for part in path.parts))
    return sorted(map(str, ours), key=lambda path: (path != "README.md", path))


def blocks_of(document: str) -> list[Block]:
    """The fenced blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        Block(document, token.map[0] + 2, token.info.partition(" ")[0], tuple(token.content.splitlines()))
        for token in MarkdownIt().parse(text)
        if token.type == "fence" and token.map
    ]


def prose_of(document: str) -> str:
    """A document without its fenced blocks, line for line."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    for block in blocks_of(document):
        lines[block.line - 2 : block.line + len(block.lines)] = [""] * (len(block.lines) + 2)
    return "\n".join(lines)


@cache
def _sources() -> str:
    """All Python files of the repository."""
    folders = (ROOT / name for name in ("src", "analysis", "benchmarks"))
    return "\0".join(path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.py")))


def is_quoted(text: str) -> bool:
    """Whether a piece of Python is in a file of the repository, word for word: then the file's tests run it."""
    return text.strip() in _sources()


def steps_of(document: str) -> list[Step]:
    """What a document has a reader do, in order."""
    return [step for block in blocks_of(document) for step in _steps(block)]


def _steps(block: Block) -> Iterator[Step]:
    if block.file_name:
        yield Step(block.document, block.line, "file", block.text, block.file_name)
    elif block.language == "python" and not is_quoted(block.text):
        yield Step(block.document, block.line, "python", block.text)
    elif block.is_shell:
        yield from _commands(block)


def _commands(block: Block) -> Iterator[Step]:
    """One per line; a line that ends in a backslash continues in the next one."""
    begin, text = 0, ""
    for number, line in enumerate(block.lines, block.line):
        begin = begin if text else number
        text += line
        if line.endswith("\\"):
            text += "\n"
            continue
        if text.strip() and not text.lstrip().startswith("#"):
            yield Step(block.document, begin, "command", text)
        text = ""
