"""The files of a real daemon of the first wave, put into a directory of a test."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "first_wave"


@dataclass
class FirstWave:
    """A state directory, a configuration, and a backup whose checkpoints are the runs' newest."""

    state: Path
    config_file: Path

    @property
    def backup(self) -> Path:
        (found,) = (self.state / "backups").iterdir()
        return found

    def checkpoint(self, program: str) -> tuple[Path, int]:
        """One whole checkpoint, and its step."""
        (found,) = (self.backup / "programs" / program).glob("ckpt-*")
        return found, int(found.name.split("-")[1].split(".")[0])


def unpacked(directory: Path, runtime: Path) -> FirstWave:
    """The configuration and the kept one name these directories; everything else is as it was left."""
    with tarfile.open(HERE / "state.tar.xz") as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4; Debian 12 has 3.11.2
        archive.extractall(directory, **safely)
    known = json.loads((HERE / "known.json").read_text())
    made = FirstWave(directory / "state", directory / "extralife.toml")

    def moved(text: str) -> str:
        places = {known["state"]: made.state, known["runtime"]: runtime, str(Path(known["state"]).parent): directory}
        for old, new in places.items():
            text = text.replace(old, str(new))
        return text

    made.config_file.write_text(moved(made.config_file.read_text()))
    kept = made.state / "last-config"
    body = moved(kept.read_text().partition("\n")[2].rstrip("\n"))
    kept.write_text(f"{hashlib.blake2b(body.encode(), digest_size=32).hexdigest()}\n{body}\n")
    return made
