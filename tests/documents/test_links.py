"""Links between the documents lead somewhere, and commands inside sentences exist."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.reference.commands import options_of_commands
from tests.documents.documents import ROOT, documents, prose_of

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?(?P<target>[^)\s>]+)")
_HEADING = re.compile(r"^#{1,6} +(?P<words>.+?)\s*$", re.MULTILINE)
_TARGETS = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)


def links_of(document: str) -> Iterator[tuple[Path, str]]:
    """The relative links of a document: the file, and the anchor in it."""
    for link in _LINK.finditer(_CODE.sub("", prose_of(document))):
        path, _, anchor = link["target"].partition("#")
        if not re.match(r"[a-z]+:", path):
            yield ((ROOT / document).parent / path).resolve() if path else ROOT / document, anchor


def anchors_of(document: str) -> set[str]:
    """What a code host makes of the headings: lower case, hyphens for blanks, a number behind a repeated one."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in _HEADING.finditer(prose_of(document)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["words"]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def makefiles() -> str:
    """The Makefile and what it includes."""
    return "".join(path.read_text() for path in [ROOT / "Makefile", *sorted(ROOT.glob("benchmarks/*.mk"))])


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document: str) -> None:
    for path, anchor in links_of(document):
        name = str(path.relative_to(ROOT))
        assert path.exists(), f"{document}: links to {name}, which is not there"
        if anchor:
            assert anchor in anchors_of(name), f"{document}: {name} has no heading for #{anchor}"


def test_the_front_page_lists_every_page() -> None:
    listed = {str(path.relative_to(ROOT)) for path, _ in links_of("docs/index.md")}
    pages = {document for document in documents() if document != "docs/index.md"}
    assert pages <= listed, f"docs/index.md, which is the navigation, lacks {', '.join(sorted(pages - listed))}"


@pytest.mark.parametrize("document", documents())
def test_commands_in_sentences_exist(document: str) -> None:
    commands = options_of_commands()
    for code in _CODE.finditer(prose_of(document)):
        name, _, rest = code[2].removeprefix(".venv/bin/").replace("\n", " ").partition(" ")
        command, *words = rest.split() or [""]
        if name == "areabench" and re.fullmatch(r"[a-z]+", command):
            assert command in commands, f"{document}: `{code[2]}`: there is no areabench {command}"
            unknown = [word for word in words if word.startswith("--") and word not in commands[command] | {"--help"}]
            assert not unknown, f"{document}: `{code[2]}`: areabench {command} has no {', '.join(unknown)}"


@pytest.mark.parametrize("document", documents())
def test_targets_of_make_in_sentences_exist(document: str) -> None:
    targets = set(_TARGETS.findall(makefiles()))
    for code in _CODE.finditer(prose_of(document)):
        if code[2].startswith("make "):
            named = [word for word in shlex.split(code[2])[1:] if re.fullmatch(r"[a-z-]+", word)]
            assert set(named) <= targets, f"{document}: `{code[2]}`: make has no such target"


def test_every_target_of_make_is_explained() -> None:
    phony = re.findall(r"^\.PHONY: (.+)$", makefiles(), re.MULTILINE)
    assert set(" ".join(phony).split()) == set(_TARGETS.findall(makefiles()))


def test_slugs_are_those_of_a_code_host() -> None:
    assert "1sqrtk" in anchors_of("docs/experiment-file.md")
    assert "what-must-fit-together" in anchors_of("docs/experiment-file.md")
