"""A box with two trained programs and a real repository of restic in a directory."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from cheap_restic import make_cheap
from checkpoints_kit import commit
from fakes import OneClock
from tools import PATIENCE

from supervisor.adapters.journal.sqlite import open_or_salvage
from supervisor.features.offsite.adapters.restic import Restic
from supervisor.features.offsite.adapters.thread import Offsite
from supervisor.features.offsite.messages import LeaseFound, OffsiteCopy, OffsiteDone
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model import facts
from supervisor.model.settings import Paths, Settings
from supervisor.shell.inbox import Inbox

PASSWORD = "correct horse"
WALL_S = 1_800_000_000.0
WAIT_S = 60.0 * PATIENCE
needs_restic = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")


def new_repository(directory: Path) -> Path:
    """An empty one: to make its key costs restic up to three seconds of CPU, so tests copy it."""
    password = directory / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    Restic(OffsiteSettings(repository=str(directory / "repo"), password_file=str(password)), directory / "cache").init()
    make_cheap(directory / "repo", PASSWORD)
    return directory


class Box:
    """A state directory with a journal, checkpoints, curves, and the thread that copies them."""

    def __init__(self, directory: Path, repository: Path, name: str = "ada") -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.name = directory, name
        self.paths = Paths(str(directory / "state"), str(directory / "run"), str(directory / "extralife.toml"))
        self.state = Path(self.paths.state_dir)
        self.state.mkdir(mode=0o700)
        Path(self.paths.config_file).write_text("[program.Pong]\n")
        self.rules = OffsiteSettings(repository=str(repository / "repo"), password_file=str(repository / "password"))
        self.inbox, self.clock, self.programs = Inbox(), OneClock(at_s=77.0, at_wall_s=WALL_S), ()
        self.journal, _, _ = open_or_salvage(self.paths.journal, wall_s=WALL_S, seen_seq=0)
        self.tell("first")
        for program, step in (("Pong", 100), ("Qbert", 7)):
            commit(Path(self.paths.run_dir(program)), step)
        curves = Path(self.paths.run_dir("Pong")) / "tensorboard"
        curves.mkdir()
        (curves / "events.1").write_bytes(b"curve")
        (self.state / "alive").write_text("{}")
        self.thread = Offsite(
            self.paths, lambda: Settings(self.paths, offsite=self.rules, programs=self.programs), self.inbox, self.clock, "9.9",
            lambda: self.name,
        )  # fmt: skip

    def tell(self, why: str) -> None:
        self.journal.append([facts.OffsiteAsked(why, "operator")], at_s=1.0, wall_s=WALL_S, boot_id="b")

    def commit(self, program: str, step: int, **more) -> None:
        commit(Path(self.paths.run_dir(program)), step, **more)

    def does(self, command, *, timeout_s: float = WAIT_S):
        """The outcome, and the claims that were posted on the way."""
        self.thread.perform(command)
        return self.waits(timeout_s)

    def waits(self, timeout_s: float = WAIT_S):
        claims = []
        while True:
            item = self.inbox.take(timeout_s)
            assert item is not None, "no outcome"
            if isinstance(item, LeaseFound):
                claims.append(item)
            else:
                assert isinstance(item, OffsiteDone)
                return item, claims

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
