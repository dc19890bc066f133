"""A box with two trained programs and a real repository of restic in a directory."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import copies_kit
import pytest
from cheap_restic import make_cheap
from copies_kit import WAIT_S, WALL_S

from supervisor.adapters.journal.sqlite import open_or_salvage
from supervisor.features.offsite.adapters.restic import Restic
from supervisor.features.offsite.adapters.thread import Offsite
from supervisor.features.offsite.messages import OffsiteCopy
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model import facts
from supervisor.model.settings import Settings

PASSWORD = "correct horse"
needs_restic = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")


def new_repository(directory: Path) -> Path:
    """An empty one: to make its key costs restic up to three seconds of CPU, so tests copy it."""
    password = directory / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    Restic(OffsiteSettings(repository=str(directory / "repo"), password_file=str(password)), directory / "cache").init()
    make_cheap(directory / "repo", PASSWORD)
    return directory


class Box(copies_kit.Box):
    """It has a journal and curves, too, and copies them to the repository."""

    def __init__(self, directory: Path, repository: Path, name: str = "ada") -> None:
        super().__init__(directory, Pong=100, Qbert=7)
        self.name, self.programs = name, ()
        Path(self.paths.config_file).write_text("[program.Pong]\n")
        self.rules = OffsiteSettings(repository=str(repository / "repo"), password_file=str(repository / "password"))
        self.journal, _, _ = open_or_salvage(self.paths.journal, wall_s=WALL_S, seen_seq=0)
        self.tell("first")
        curves = self.run_dir("Pong") / "tensorboard"
        curves.mkdir()
        (curves / "events.1").write_bytes(b"curve")
        (self.state / "alive").write_text("{}")
        self.thread = Offsite(
            self.paths, lambda: Settings(self.paths, offsite=self.rules, programs=self.programs), self.inbox, self.clock, "9.9",
            lambda: self.name,
        )  # fmt: skip

    def tell(self, why: str) -> None:
        self.journal.append([facts.OffsiteAsked(why, "operator")], at_s=1.0, wall_s=WALL_S, boot_id="b")

    def does(self, command):
        """The outcome, and the claims that were posted on the way."""
        *claims, outcome = super().does(command)
        return outcome, claims

    def copies(self, cause: str = "period", **more):
        return self.does(copy(cause, **more))

    def restic(self) -> Restic:
        return Restic(self.rules, self.directory / "cache")

    def close(self) -> None:
        self.thread.stop()
        self.journal.close()


def copy(cause="period", *, limit_s=WAIT_S, **more) -> OffsiteCopy:
    return OffsiteCopy(
        cause, ("Never", "Pong", "Qbert"), limit_s, more.pop("token", ""), more.pop("generation", 0),
        more.pop("place", ""), **more,
    )  # fmt: skip


def whys(journal: Path) -> list[str]:
    db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        return [body for (body,) in db.execute("SELECT body FROM fact ORDER BY seq")]
    finally:
        db.close()
