"""`next-box`: a box takes over a real repository by itself, and a machine that is always on rents the next one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import forked
import pytest
from tools import ROOT

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "adapters/offsite"))
from offsite_kit import Box, needs_restic, new_repository

from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters.restic import COPY_TAG, LEASE_TAG, MARK_TAG, Restic
from supervisor.features.offsite.messages import Claim
from supervisor.features.offsite.settings import OffsiteSettings

pytestmark = needs_restic
SECRET = "hunter2-of-the-provider"


class Template:
    """What each box of one template has: the repository, its password, and an empty directory."""

    def __init__(self, directory):
        self.directory = directory
        new_repository(directory)
        self.rules = OffsiteSettings(repository=str(directory / "repo"), password_file=str(directory / "password"))
        self.log, self.rented = directory / "next-box.jsonl", directory / "rented"
        self.rented.write_text("")

    @property
    def restic(self):
        return Restic(self.rules, self.directory / "cache")

    def run(self, *words, **env):
        args = ["next-box", *words]
        if not env:
            args[2:2] = ["--repository", self.rules.repository, "--password-file", self.rules.password_file]
        home = {"XDG_CACHE_HOME": str(self.directory), "XDG_STATE_HOME": str(self.directory), "PYTHONPATH": str(ROOT)}
        done = forked.ctl(args, env={**os.environ, **home, **env}, cwd=ROOT, timeout_s=120)
        return done.returncode, done.stdout + done.stderr

    def start(self, name, *words, **env):
        to = str(self.directory / name)
        return self.run("start", "--to", to, "--config-to", f"{to}.toml", "--if-alive", "end", "--every", "1", *words, **env)

    def keep(self, *words, command="echo usd_per_hour=1.5"):
        """One look. The command also prints a secret, and leaves a line for each of its runs."""
        script = f"echo $EXTRALIFE_LOST_BOX >>{self.rented}; echo {SECRET}; echo {SECRET} >&2; {command}"
        return self.run("keep", "--once", "--log", str(self.log), *words, "--", "sh", "-c", script)

    @property
    def entries(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def rents(self):
        return self.rented.read_text().split()


@pytest.fixture
def template(tmp_path):
    (tmp_path / "off").mkdir()
    return Template(tmp_path / "off")


@pytest.fixture
def ada(template, tmp_path):
    """A box that has copied."""
    made = Box(tmp_path / "ada", template.directory)
    made.copies(then="900")
    yield made
    made.close()


def holder(template):
    found = leases.in_repository(template.restic)
    return None if found is None else (found.box, found.generation)


# --- the new box -------------------------------------------------------------------------------------------------------


def test_with_no_copy_yet_the_first_box_begins_and_the_next_one_does_not(template):
    code, said = template.start("a")
    assert code == 0, said
    assert "the trainings begin here" in said
    assert holder(template) == (socket.gethostname(), 1)
    code, said = template.start("b")
    assert code == 75, said
    assert "is presumed dead in" in said
    assert not (template.directory / "b/journal.sqlite").exists()
    assert template.start("a")[0] == 0, "interrupted before its daemon began"


def test_a_repository_that_is_not_there_is_not_made_anew(template):
    """Its disk may not be mounted: the trainings would begin from nothing beside their copies."""
    template.rules = replace(template.rules, repository=str(template.directory / "other"))
    code, said = template.keep()
    assert (code, "if it was never made, `extralifectl offsite init` makes it" in said) == (1, True), said
    assert not (template.directory / "other").exists()


def test_a_dead_box_is_followed_and_a_live_one_is_not(template, ada):
    code, said = template.start("b")
    assert (code, "box ada gave its last sign of life" in said) == (75, True), said
    code, said = template.start("b", "--if-alive", "take-over")
    assert code == 0, said
    assert holder(template) == (socket.gethostname(), 2)
    assert (template.directory / "b/journal.sqlite").exists()
    assert tomllib.loads((template.directory / "b.toml").read_text())["offsite"]["repository"] == template.rules.repository
    code, said = template.start("b")
    assert (code, "has trainings of its own" in said) == (0, True), said


@pytest.mark.parametrize("then", ["done", "idle"])
def test_a_box_ends_by_a_sentence_where_nothing_is_to_train(template, ada, then):
    ada.copies(then=then)
    code, said = template.start("b", "--after", "1")
    assert code == 1
    assert said.count("\n") == 1
    assert holder(template) == ("ada", 1)


def test_the_same_box_with_an_empty_disk_goes_on_at_once(template, ada, monkeypatch):
    monkeypatch.setenv("EXTRALIFE_BOX_ID", "pod-7")
    ada.copies(then="900")
    code, said = template.start("b", EXTRALIFE_BOX_ID="pod-8", **names(template))
    assert code == 75, said
    code, said = template.start("b", EXTRALIFE_BOX_ID="pod-7", **names(template))
    assert (code, "was this box" in said) == (0, True), said


def names(template):
    """The repository as a template gives it."""
    rules = template.rules
    return {"EXTRALIFE_OFFSITE_REPOSITORY": rules.repository, "EXTRALIFE_OFFSITE_PASSWORD_FILE": rules.password_file}


def presumed_dead(template):
    copy, lease = (
        next(each.id for each in reversed(template.restic.snapshots()) if tag in each.tags) for tag in (COPY_TAG, LEASE_TAG)
    )
    tags = (MARK_TAG, "mark=presumed", "number=1", f"of={copy}/{lease}")
    template.restic.note("mark", "presumed", host="desk", tags=tags)


def test_of_two_boxes_that_take_over_within_seconds_one_holds_the_repository(template, ada):
    presumed_dead(template)
    env = {**os.environ, **names(template), "XDG_CACHE_HOME": str(template.directory), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "supervisor.ctl", "next-box", "start", "--if-alive", "end", "--every", "1", "--to"]
    both = [subprocess.Popen([*argv, str(template.directory / name)], cwd=ROOT, env=env) for name in "bc"]
    codes = [each.wait(120) for each in both]
    held = {name: leases.claim(template.restic, template.directory / name / "offsite", None, name, 0.0)[0] for name in "bc"}
    assert list(held.values()).count(Claim.HELD) == 1, held
    for name, code in zip("bc", codes, strict=True):
        assert code in ((0,) if held[name] is Claim.HELD else (0, 75)), "one that was overtaken later is fenced at its start"
        assert (template.directory / name / "journal.sqlite").exists() is (code == 0)


def test_a_lease_from_the_future_counts_as_one_of_today(template):
    """A box whose clock is ahead by decades took the repository, and died before its first copy."""
    tags = [word for tag in (LEASE_TAG, "token=t", "generation=1", "then=900") for word in ("--tag", tag)]
    template.restic._run("backup", "--json", "--stdin", "--host", "ada", "--time", "2099-01-01 00:00:00", *tags, given="{}")
    code, said = template.start("b")
    assert (code, "box ada gave its last sign of life" in said, holder(template)) == (75, True, ("ada", 1)), said
    code, said = template.start("b", "--if-alive", "wait", "--after", "1")
    assert (code, holder(template)) == (0, (socket.gethostname(), 2)), said


def test_the_trainings_of_somebody_else_are_not_taken_by_a_box_that_has_its_own(template, ada, tmp_path):
    bob = Box(tmp_path / "bob", template.directory, "bob")
    try:
        code, said = template.run("start", "--to", str(bob.state), "--if-alive", "take-over")
        assert (code, "has trainings of its own: the repository is not read" in said) == (0, True), said
        assert "belongs to box ada" in bob.copies()[0].error
    finally:
        bob.close()
    assert holder(template) == ("ada", 1)


def test_a_paused_box_does_not_follow(template, ada):
    assert template.run("pause")[0] == 0
    assert template.start("b", "--if-alive", "end", "--after", "1")[0] == 1
    assert template.run("resume")[0] == 0
    assert template.start("b")[0] == 75


@pytest.mark.parametrize("case", ["wrong password", "foreign repository", "a copy of a newer release"])
def test_what_cannot_be_continued_is_refused_in_one_sentence(template, ada, case):
    words = {
        "wrong password": "wrong password", "foreign repository": "has 1 snapshots that extralife did not make",
        "a copy of a newer release": "was made by another extralife",
    }  # fmt: skip
    if case == "wrong password":
        (template.directory / "password").write_text("guess\n")
    elif case == "foreign repository":
        for each in template.restic.snapshots():
            template.restic.remove(each.id)
        template.restic.note("mine", "text", host="me", tags=("photos",))
    else:
        subprocess.run(["mkdir", template.directory / "strange"], check=True)
        (template.directory / "strange/copy.json").write_text('{"version": 99, "wall_s": 1.0}')
        template.restic.copy(template.directory / "strange", host="ada", tags=("extralife", "generation=1", "number=9"))
    code, said = template.start("b", "--if-alive", "take-over")
    assert (code, words[case] in said) == (1, True), said
    assert not (template.directory / "b/journal.sqlite").exists()


def test_a_template_writes_its_repository_into_a_configuration_that_names_none(template, tmp_path):
    config = tmp_path / "new.toml"
    config.write_text("[program.Pong]\n[offsite]\nevery_s = 60\n")
    assert template.run("overlay", "--", str(config)) == (0, "")
    assert tomllib.loads(config.read_text())["offsite"] == {
        "every_s": 60, "repository": template.rules.repository, "password_file": template.rules.password_file,
    }  # fmt: skip
    config.write_text('[offsite]\nrepository = "/mine"\n')
    template.run("overlay", "--", str(config))
    assert config.read_text() == '[offsite]\nrepository = "/mine"\n'


# --- the machine that is always on ------------------------------------------------------------------------------------


def test_a_dead_box_is_rented_once_and_the_rented_one_takes_over_at_once(template, ada):
    assert template.keep("--after", "1")[0] == 0
    assert template.rents() == [], "it has seen no silence yet"
    while not template.rents():
        code, said = template.keep("--after", "1")
        assert code == 0, said
    for _ in range(3):
        template.keep("--after", "1")
    assert template.rents() == ["ada"]
    assert [each["usd_per_hour"] for each in template.entries if each["what"] == "succeeded"] == [1.5]
    assert SECRET not in template.log.read_text() + said
    code, said = template.start("b")
    assert (code, f"{socket.gethostname()} presumes box ada dead" in said) == (0, True), said
    template.keep("--after", "1")
    assert template.rents() == ["ada"], "a new box holds the repository"
    assert template.entries[-1]["key"] == "lives"


def test_a_sign_of_life_between_two_looks_prevents_the_rent(template, ada):
    template.keep("--after", "3")
    ada.copies(then="900")
    template.keep("--after", "3")
    assert template.rents() == []


@pytest.mark.parametrize(("word", "gone"), [("true", None), ("false", True), ("sh -c 'exit 3'", None)])
def test_the_providers_word_is_kept_from_look_to_look(template, ada, word, gone):
    for _ in range(2):
        template.keep("--ask", word)
    _, watch = json.loads(template.log.with_suffix(".watch").read_text())
    assert (watch["gone_s"] is not None) is (gone is True)
    assert ("the provider says that box ada is there" in template.entries[-1]["why"]) is (word == "true")


def test_of_two_machines_the_one_that_was_first_rents(template, ada):
    template.keep("--after", "1")
    presumed_dead(template)
    template.keep("--after", "3000")
    template.keep("--after", "3000")
    assert template.rents() == []
    assert "another machine rents the next box" in template.entries[-1]["why"]


def test_the_work_that_is_over_ends_the_keeper(template, ada):
    ada.copies(then="done")
    code, said = template.run("keep", "--log", str(template.log), "--every", "1", "--after", "1", "--", "false")
    assert (code, "the work is over" in said) == (0, True), said


def test_a_paused_keeper_rents_nothing(template, ada):
    template.run("pause")
    for _ in range(2):
        template.keep("--after", "1")
    assert template.rents() == []
    assert template.entries[-1]["key"] == "paused"


def test_a_repository_that_is_away_is_not_silence(template, ada):
    (template.directory / "repo").rename(template.directory / "away")
    assert template.keep("--after", "1")[0] == 1
    (template.directory / "away").rename(template.directory / "repo")
    template.keep("--after", "1")
    assert template.rents() == []


def test_a_failed_command_is_tried_again_later_and_its_alert_has_no_secret(template, ada, tmp_path):
    told = tmp_path / "alerts"
    config = tmp_path / "keep.toml"
    config.write_text(
        f'[offsite]\nrepository = "{template.rules.repository}"\npassword_file = "{template.rules.password_file}"\n'
        f'[alerts]\ncommand = ["sh", "-c", "cat >>{told}"]\n[program.Pong]\n'
    )
    args = ["-c", str(config), "next-box", "keep", "--once", "--after", "1", "--log", str(template.log), "--"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(100):
        done = forked.ctl([*args, "sh", "-c", f"echo {SECRET}; exit 4"], env=env, cwd=ROOT)
        if told.exists():
            break
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [each["what"] for each in template.entries if "of" in each] == ["ordered", "failed"]
    alert = json.loads(told.read_text())
    assert (alert["kind"], alert["severity"], "ended with status 4" in alert["text"]) == ("next_box", "critical", True)
    assert SECRET not in told.read_text() + template.log.read_text() + said


def test_a_log_that_cannot_be_read_ends_the_keeper_since_its_limits_would_not_hold(template, ada):
    template.log.mkdir()
    code, said = template.keep("--after", "1")
    assert (code, str(template.log) in said, template.rents()) == (1, True, []), said


def test_a_rent_without_an_outcome_counts_as_one(template, ada):
    while not template.rents():
        template.keep("--after", "1")
    lines = template.log.read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["what"] != "succeeded"]
    template.log.write_text("\n".join([*kept, '{"wall_s": 1']) + "\n")
    for _ in range(2):
        template.keep("--after", "1")
    assert template.rents() == ["ada"], "the keeper was killed while the command ran, and the box comes"


def test_two_keepers_with_one_log_are_refused(template, ada):
    import fcntl

    with template.log.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = template.keep()
    assert (code, "another `next-box keep` uses" in said) == (1, True), said
