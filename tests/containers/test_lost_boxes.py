"""Boxes that are lost one after the other: the next one is rented from the same template and goes on, without a hand."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from containerbox import COUNTER, ROOT, Box, until
from tools import PATIENCE

pytestmark = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")
CONFIG = f"{COUNTER}[offsite]\nevery_s = 5\n"
AFTER_S = 30 * max(1, int(PATIENCE) // 3)  # this machine is busy: its containers copy late
MOST = 60  # boxes of a test


class Provider:
    """It rents containers of one template. `rent` is a command for `next-box keep`; a file `fails` lets it fail."""

    def __init__(self, directory: Path, releases: Path, *more: str) -> None:
        self.directory, self.releases, self.more, self.boxes = directory, releases, more, []
        for each in ("copies", "orders"):
            (directory / each).mkdir()
        (directory / "password").write_text("correct horse\n")
        (directory / "password").chmod(0o600)
        where = ("--repo", str(directory / "copies/repo"), "--password-file", str(directory / "password"))
        subprocess.run(["restic", *where, "init"], check=True, capture_output=True)
        self.command = directory / "rent"
        self.command.write_text(
            f'#!/bin/sh\n[ ! -e {directory}/fails ] || {{ echo "KEY=s3cr3t" >&2; exit 7; }}\n'
            f"mktemp {directory}/orders/XXXXXX\necho usd_per_hour=0.5\n"
        )
        self.command.chmod(0o755)
        self.keeper = None

    def box(self, config: str = "") -> Box:
        """A new box with an empty volume, but for the program, which would take minutes to install."""
        made = Box(self.directory / f"box-{len(self.boxes)}", config)
        if not config:
            (made.home / "extralife.toml").unlink()
        shutil.copytree(self.releases, made.home / "releases", symlinks=True)
        self.boxes.append(made)
        return made

    def start(self, box: Box, *more: str) -> Box:
        env = {"REPOSITORY": "/copies/repo", "PASSWORD": "correct horse"}
        words = [word for name, value in env.items() for word in ("--env", f"EXTRALIFE_OFFSITE_{name}={value}")]
        box.run("--volume", f"{self.directory}/copies:/copies", *words, *self.more, *more)
        return box

    def delivers(self) -> list[Box]:
        """Start a box for each order."""
        made = []
        for order in sorted((self.directory / "orders").iterdir()):
            order.unlink()
            made.append(self.start(self.box()))
        return made

    def keep(self, *more: str) -> None:
        argv = [
            sys.executable, "-m", "supervisor.ctl", "next-box", "keep", "--every", "2", "--after", str(AFTER_S), "--a-day", str(MOST), "--arrives", str(2 * AFTER_S),
            "--log", str(self.directory / "log.jsonl"), *more, "--", str(self.command),
        ]  # fmt: skip
        env = {
            **os.environ, "PYTHONPATH": str(ROOT), "EXTRALIFE_OFFSITE_REPOSITORY": f"{self.directory}/copies/repo",
            "EXTRALIFE_OFFSITE_PASSWORD_FILE": f"{self.directory}/password", "XDG_CACHE_HOME": str(self.directory / "cache"),
        }  # fmt: skip
        with (self.directory / "keeper.log").open("w") as out:
            self.keeper = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return (self.directory / "keeper.log").read_text() + (
            self.boxes[-1].said() if self.boxes and self.boxes[-1].names else ""
        )

    def entries(self, what: str) -> list[dict]:
        lines = (self.directory / "log.jsonl").read_text().splitlines() if (self.directory / "log.jsonl").exists() else []
        return [entry for line in lines if (entry := json.loads(line))["what"] == what]

    def next(self) -> Box:
        """The box that is rented next, once it trains."""
        (box,) = until(self.delivers, 300, "a rent", self.said)
        box.trains(300)
        return box

    def copied(self, box: Box) -> int:
        """The step in the newest copy that the box has made, once it has made one."""
        page = until(
            lambda: (found := _json(box.ctl("offsite", "--json", check=False))).get("copied") and found,
            120,
            "a copy",
            box.said,
        )
        return page["copied"]["steps"].get("one") or 0

    def close(self) -> None:
        if self.keeper is not None:
            self.keeper.kill()
            self.keeper.wait()
        for box in self.boxes:
            box.close()


def _json(text: str) -> dict:
    try:
        return json.loads(text)
    except ValueError:
        return {}


@pytest.fixture
def provider(installed, tmp_path):
    made = Provider(tmp_path, installed)
    yield made
    made.close()


def began(box: Box) -> list[int]:
    """The steps at which the program's attempts began, on this box and those before."""
    return [int(step) for step in re.findall(r"begins at step (\d+)", box.ctl("tail", "-1000000", "one"))]


@pytest.mark.slow
def test_two_boxes_of_one_template_one_trains_and_the_other_waits(provider):
    first = provider.start(provider.box(CONFIG))
    first.trains(120)
    provider.copied(first)
    second = provider.start(provider.box())
    until(lambda: "This box waits as the next one" in second.said(), 120, "the second box", second.said)
    assert not (second.home / "state/journal.sqlite").exists()
    ends = provider.start(provider.box(), "--env", "EXTRALIFE_NEXT_BOX=end")
    assert ends.ended() == 75
    assert "is presumed dead in" in ends.said()
    step = provider.copied(first)
    first.stop(30)
    second.trains(240)
    assert began(second)[-1] >= step, second.said()


@pytest.mark.slow
def test_a_template_without_a_password_trains_nothing(provider):
    box = provider.box()
    box.run("--volume", f"{provider.directory}/copies:/copies", "--env", "EXTRALIFE_OFFSITE_REPOSITORY=/copies/repo")
    assert box.ended() == 1
    assert "not the repository's password" in box.said()
    assert not (box.home / "state").exists()


# --- lost boxes ---------------------------------------------------------------------------------------------------------


class Night:
    """One box after the other is lost. Each moment loses the present one in its own way, and leaves the next one training."""

    MOMENTS = (
        "while it trains", "in a copy", "the command fails", "in a check", "the next one in its restore", "the old one comes back",
        "two are rented", "the provider lies", "the repository is away", "it saves and leaves",
    )  # fmt: skip

    def __init__(self, provider: Provider, luck: random.Random) -> None:
        self.provider, self.luck = provider, luck
        self.box = provider.start(provider.box(CONFIG))
        self.box.trains(120)
        self.floor = provider.copied(self.box)
        provider.keep()

    def lose(self, moment: str) -> None:
        provider, box, rents = self.provider, self.box, len(self.provider.entries("succeeded"))
        self.floor = max(self.floor, provider.copied(box))
        match moment:
            case "in a copy" | "in a check":
                if moment == "in a check":
                    box.ctl("offsite", "check", "--no-wait", check=False)
                until(lambda: box.exec("pgrep", "-x", "restic", check=False).returncode == 0, 60, "restic", box.said)
            case "the command fails":
                (provider.directory / "fails").touch()
            case "the repository is away":
                config = provider.directory / "copies/repo/config"
                config.rename(f"{config}.away")
                time.sleep(AFTER_S * 1.5)  # longer than a box may be silent: time itself is what is tried
                config.with_name("config.away").rename(config)
                time.sleep(AFTER_S * 0.5)  # shorter than that, so nothing may be rented
                assert len(provider.entries("succeeded")) == rents, "silence of the repository is no silence of a box"
            case _:
                time.sleep(self.luck.uniform(0, 4))  # a random moment
        if moment == "it saves and leaves":
            box.stop(60)
            self.floor = max(self.floor, box.acknowledged())
        else:
            box.kill()
        if moment == "the command fails":
            until(lambda: provider.entries("failed"), 300, "a failure", provider.said)
            (provider.directory / "fails").unlink()
        if moment == "the provider lies":
            (order,) = until(lambda: [*(provider.directory / "orders").iterdir()], 300, "a rent", provider.said)
            order.unlink()
        if moment == "the next one in its restore":
            (next_,) = until(provider.delivers, 300, "a rent", provider.said)
            until(lambda: "reading copy" in next_.said(), 120, "the restore", next_.said)
            time.sleep(self.luck.uniform(0, 3))  # a random moment of the restore
            next_.kill()
        self.box = provider.next()
        if moment == "the old one comes back":
            box.start()
            until(lambda: "HAS TAKEN OVER" in box.ctl("status", check=False), 120, "the fence", box.said)
            assert not box.program().get("pid")
            box.kill()
        if moment == "two are rented":
            other = provider.start(provider.box(), "--env", "EXTRALIFE_NEXT_BOX=end")
            assert other.ended() == 75
        assert began(self.box)[-1] >= self.floor, moment
        trains = [each for each in provider.boxes if each.program().get("phase") == "RUNNING"]
        assert trains == [self.box], moment


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_lost_boxes_in_a_row_are_replaced_without_a_hand(provider):
    """EXTRALIFE_LOST_BOXES=10 loses so many."""
    seed, count = random.randrange(2**32), int(os.environ.get("EXTRALIFE_LOST_BOXES", "3"))
    print("seed", seed)
    night = Night(provider, random.Random(seed))
    moments = [*Night.MOMENTS] * (1 + count // len(Night.MOMENTS))
    for moment in moments[:count] if count >= len(Night.MOMENTS) else night.luck.sample(moments, count):
        began_s = time.monotonic()
        night.lose(moment)
        print(f"{moment}: {time.monotonic() - began_s:.0f} s")
    rents = provider.entries("succeeded")
    assert len(rents) <= count + 2, "one for each lost box, and for each that never took over"
    assert "s3cr3t" not in (provider.directory / "log.jsonl").read_text() + provider.said()
