"""A disc that becomes full: a small tmpfs that is filled up, or a limit on the size of the files of a process."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TMPFS_BYTES = 24 * 2**20
_BALLAST = "ballast"


@dataclass(frozen=True)
class Disc:
    """Where the run file goes; `mounted` where it is a tmpfs of its own."""

    folder: Path
    mounted: bool

    def fill(self, process: int | None, run_file: Path) -> bool:
        """Take all room that is left; returns whether there was anybody to take it from."""
        if self.mounted:
            return self._write_ballast()
        if process is None:
            return False
        size = run_file.stat().st_size
        with suppress(ProcessLookupError):
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, size))
            return True
        return False

    def _write_ballast(self) -> bool:
        block = bytes(4096)
        with (self.folder / _BALLAST).open("wb", buffering=0) as file, suppress(OSError):
            while file.write(block):
                pass
        return True

    def make_room(self) -> None:
        """Give the room back."""
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; its files are kept in its place."""
        self.make_room()
        if self.mounted:
            kept = self.folder.with_name("kept")
            shutil.copytree(self.folder, kept)
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
            self.folder.rmdir()
            kept.rename(self.folder)


def open_disc(folder: Path, *, small: bool) -> Disc:
    """A folder, on a small disc where that is asked for, root may mount one and tests may change the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    allowed = os.environ.get("AREABENCH_SYSTEM_TESTS") == "1" and os.geteuid() == 0
    if not (small and allowed and shutil.which("mount")):
        return Disc(folder, mounted=False)
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    return Disc(folder, mounted=subprocess.run(command, capture_output=True, check=False).returncode == 0)
