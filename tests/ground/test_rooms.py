"""The rooms stay narrow: what is in a folder can be seen at a glance."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDEST = 14  # Python files in a folder


def test_no_folder_is_wide() -> None:
    counts = {folder: len([*folder.glob("*.py")]) for top in ("src", "tests") for folder in ROOT.glob(f"{top}/**/")}
    wide = {str(folder): count for folder, count in counts.items() if count > WIDEST and folder.name != "methods"}
    assert not wide, f"more than {WIDEST} Python files; join what is one idea, or make a folder"
