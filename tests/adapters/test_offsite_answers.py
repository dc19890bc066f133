"""What restic is asked, and what is made of its answers and of a copy's files: without restic, and to the word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.adapters.offsite import restic as module
from supervisor.adapters.offsite import restoring
from supervisor.adapters.offsite.restic import Restic, ResticError, ResticSnapshot
from supervisor.adapters.offsite.restoring import NotRestored
from supervisor.policy.upkeep.offsite import Lease, OffsiteSettings

SUMMARY = {"message_type": "summary", "snapshot_id": "abcdef0123", "data_added": 7}


class Asked(Restic):
    """Notes each call, and answers with the output that it was given."""

    def __init__(self, output: str = "", **rules: object) -> None:
        super().__init__(OffsiteSettings(repository="/r", password_file="/none/password", **rules), Path("/none/cache"))
        self.calls: list[tuple[object, ...]] = []
        self.output = output

    def _run(self, *args: str, cwd: Path | None = None, given: str = "") -> str:
        self.calls.append((args, cwd, given))
        return self.output


LIST = ("snapshots", "--json", "--no-lock", "--tag", "extralife", "--tag", "extralife-lease")


def snapshot(id_: str, wall_s: float, *tags: str) -> ResticSnapshot:
    return ResticSnapshot(id_, wall_s, "ada", tags)


# --- questions -----------------------------------------------------------------------------------------------------------


def test_what_is_forgotten():
    """Copies 2 and 3 are of a box whose clock was ahead, copy 4 is the true newest one; leases are ordered in the same way."""
    rows = [
        {"short_id": id_, "time": f"20{year}-01-01T00:00:00Z", "hostname": "ada", "tags": tags}
        for id_, year, tags in [
            ("c1", 20, ["extralife", "number=1", "step=Pong:900"]), ("c2", 50, ["extralife", "number=2", "step=Qbert:"]),
            ("c3", 50, ["extralife", "number=3"]), ("c4", 26, ["extralife", "number=4", "step=Pong:7"]),
            *[(f"l{n}", 50 - n, ["extralife-lease", "token=t", f"generation={n}"]) for n in range(7)],
        ]
    ]  # fmt: skip
    restic = Asked()
    surplus = [{"remove": [{"short_id": f"c{n}"} for n in range(1, 5)]}, {"remove": None}]
    answers = {"snapshots": json.dumps(rows), "--dry-run": json.dumps(surplus)}
    calls = []

    def run(*args: str, **_: object) -> str:
        calls.append(args)
        return next((answer for word, answer in answers.items() if word in args), "")

    restic._run = run
    restic.forget(["Pong", "Never"])
    assert calls[-1] == ("forget", "c2", "c3", "l0", "l1", "--prune")
    restic.forget(["Qbert"])
    assert calls[-1] == ("forget", "c1", "c3", "l0", "l1", "--prune")
    answers["--dry-run"] = "{"
    with pytest.raises(ResticError, match=r"^restic forget: the answer cannot be parsed \(JSONDecodeError\)$"):
        restic.forget([])


def test_a_limit_of_uploads_and_the_share_that_is_checked_are_named_where_they_are_set():
    for rules, limit, share in (
        ({"upload_kib_s": 50}, ("--limit-upload", "50"), ("--read-data-subset=5%",)),
        ({"check_percent": 0}, (), ()),
    ):
        restic = Asked(json.dumps(SUMMARY), **rules)
        restic.copy(Path("/files"), host="ada", tags=("a",))
        restic.check()
        assert [args for args, _, _ in restic.calls] == [
            ("backup", "--json", "--host", "ada", "--ignore-ctime", *limit, "--tag", "a", "."), ("check", *share),
        ]  # fmt: skip


def test_tools_that_are_not_installed_do_not_stand_before_it(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None if name == "setpriv" else f"/bin/{name}")
    assert module.low_priority_prefix() == ["ionice", "-c", "2", "-n", "7"]
    monkeypatch.setattr(module.shutil, "which", lambda _: "/bin/x")
    assert module.low_priority_prefix()[:3] == ["setpriv", "--pdeathsig", "INT"]


# --- answers -------------------------------------------------------------------------------------------------------------


def test_snapshots_are_in_the_order_of_their_time():
    rows = [
        {"short_id": "b", "time": "2026-11-23T05:27:57.428391114Z", "hostname": "ada", "tags": ["extralife"]},
        {"short_id": "c", "time": "2026-11-23T06:27:56.5+01:00", "hostname": None},
        {"short_id": "a", "time": "2026-11-23T05:27:56.5Z", "tags": None},
    ]
    restic = Asked(json.dumps(rows))
    at_s = 1_795_411_676.5
    assert restic.snapshots() == [
        ResticSnapshot("a", at_s, "", ()),
        ResticSnapshot("c", at_s, "", ()),
        ResticSnapshot("b", 1_795_411_677.428391, "ada", ("extralife",)),
    ]
    assert restic.calls == [
        (LIST, None, ""),
    ]  # fmt: skip
    assert Asked("null").snapshots() == []


@pytest.mark.parametrize(
    ("output", "error"), [("{", "JSONDecodeError"), ('[{"short_id": "a"}]', "KeyError"), ("5", "TypeError")]
)
def test_a_list_that_is_none_is_told(output, error):
    with pytest.raises(ResticError) as told:
        Asked(output).snapshots()
    assert str(told.value) == f"restic snapshots: the answer cannot be parsed ({error})"


@pytest.mark.parametrize(
    "output",
    [
        "",
        "no json",
        "[]",
        '{"message_type": "status", "snapshot_id": "a"}',
        '{"message_type": "summary", "snapshot_id": ""}',
    ],
)
def test_a_copy_without_a_summary_is_not_believed(output):
    with pytest.raises(ResticError) as told:
        Asked(output).copy(Path("/files"), host="ada", tags=())
    assert str(told.value) == "restic backup: it ended without a summary, so nothing is known of the copy"


def test_the_summary_is_the_last_of_the_lines():
    lines = [json.dumps({**SUMMARY, "snapshot_id": "first"}), json.dumps(SUMMARY), '{"message_type": "status"}', "bye"]
    assert Asked("\n".join(lines)).copy(Path("/files"), host="ada", tags=()) == (SUMMARY, {})


@pytest.mark.parametrize(
    ("err", "out", "told"),
    [
        ("Fatal: Warning: one\n  two \ntwo\n", "x", "restic check: one; two"),
        ("", "error: of the output\n", "restic check: of the output"),
        ("\n", "", "restic check: ended with status 3 and printed nothing"),
        ('{"message_type": "exit_error", "message": "Fatal: no key"}', "", "restic check: no key"),
        ('{"message_type": "error", "error": {"message": "in it"}}', "", "restic check: in it"),
        ('{"message_type": "error", "error": "as text"}', "", "restic check: as text"),
        ('{"message_type": "status", "message": "x"}\n{"message_type": "summary"}\nend', "", "restic check: end"),
        ("{no json", "", "restic check: {no json"),
        ("x" * 700, "", "restic check: " + "x" * 600),
    ],
)
def test_restic_s_own_reason_in_one_line(err, out, told):
    assert Asked()._error_message("check", 3, err, out) == told


def test_no_secret_is_shown_and_what_is_too_short_for_one_is_left(tmp_path):
    (tmp_path / "env").write_text("A=123456\nB=54321\n")
    (tmp_path / "password").write_text("pw3\n")
    restic = Restic(
        OffsiteSettings(repository="/r", password_file=str(tmp_path / "password"), env_file=str(tmp_path / "env")), tmp_path
    )
    told = restic._error_message("init", 1, "123456 54321 pw3 rest:https://me:secret@host/", "")
    assert told == "restic init: *** 54321 *** rest:https://me:***@host/"
    (tmp_path / "password").write_text("ab\n")
    assert restic._error_message("init", 1, "table", "") == "restic init: table"


def test_a_lease_is_in_the_tags_of_its_snapshot():
    tags = ("extralife-lease", "token=t=1", "generation=4")
    assert snapshot("a", 5.0, *tags).lease == Lease("t=1", 4, "ada", 5.0, "a")
    assert snapshot("a", 5.0, *tags[1:]).lease is None, "a copy"
    for odd in (tags[:2], (tags[0], tags[2]), (*tags[:2], "generation=x")):
        assert snapshot("a", 5.0, *odd).lease is None


# --- the way back --------------------------------------------------------------------------------------------------------


def test_the_newest_copy_of_the_newest_generation_or_the_one_that_is_named():
    first = snapshot("aa1", 9.0, "extralife", "generation=1")
    taken = snapshot("ab2", 5.0, "extralife", "generation=2")
    older = snapshot("ab3", 4.0, "extralife", "generation=2")
    counted = snapshot("ae6", 1.0, "extralife", "generation=2", "number=1")
    lease = snapshot("ac4", 99.0, "extralife-lease", "generation=9")
    odd = snapshot("ad5", 99.0, "extralife", "generation=x")
    known = [first, taken, older, lease, odd]
    assert restoring.choose(known) == taken
    assert restoring.choose([counted, *known]) == counted, "its box's clock was behind, or those of the others ahead"
    assert restoring.choose(known, "aa") == first
    for wanted, count in (("ab", 2), ("ac4", 0)):
        with pytest.raises(NotRestored) as told:
            restoring.choose(known, wanted)
        assert str(told.value) == f"the repository has {count} copies with the id '{wanted}'; `offsite list` shows them"
    with pytest.raises(NotRestored, match=r"^the repository has no copy of extralife yet$"):
        restoring.choose([lease])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, ""), ("[]", ""), ("{", ""), ('{"version": 1}', ""), ('{"version": 1, "wall_s": "x"}', ""),
        ('{"version": 2, "wall_s": 5}', "the copy was made by another extralife (version 2)"),
    ],
)  # fmt: skip
def test_a_copy_without_a_list_that_can_be_read_is_refused(tmp_path, text, told):
    if text is not None:
        (tmp_path / "copy.json").write_text(text)
    with pytest.raises(NotRestored) as refused:
        restoring._about(tmp_path)
    damaged = "the copy has no list of its contents, or a damaged one; choose another with --snapshot"
    assert str(refused.value) == (told or damaged)


class Probed:
    """A repository that gives back what it was given, or something else."""

    def __init__(self, back: str | None = None, error: Exception | None = None) -> None:
        self.back, self.error, self.calls = back, error, []

    def copy(self, directory: Path, *, host: str, tags: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
        if self.error is not None:
            raise self.error
        self.text = (directory / "probe").read_text()
        self.calls.append((host, tags))
        return {"snapshot_id": "s7"}, {}

    def restore(self, snapshot: str, target: Path) -> None:
        self.calls.append(snapshot)
        if self.back != "":
            target.mkdir()
            (target / "probe").write_text(self.back or self.text)

    def remove(self, snapshot: str) -> None:
        self.calls.append(snapshot)


@pytest.mark.parametrize(
    ("back", "error", "told"),
    [
        (None, None, ""), ("other", None, "the file read back differs from the file written"),
        ("", None, "the file that was written cannot be read back: No such file or directory"),
        (None, ResticError("restic backup: no key"), "restic backup: no key"),
    ],
)  # fmt: skip
def test_a_repository_is_tried_out_with_one_small_file(tmp_path, back, error, told):
    probed = Probed(back, error)
    assert restoring.try_out(probed, tmp_path, box="ada") == told
    assert probed.calls == ([] if error else [("ada", ("extralife-probe",)), "s7", "s7"])
