"""An upgrade under eight workers: in place, back by itself from versions that are broken in three ways, cut short by a
loss of power at each step.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Self

import pytest
from installed import CONFIG, GAMES, STATE, UNIT, Installed
from labbox import CHECKOUT, PACKAGES, PATIENCE, box_python, until

COUNTERS = tuple(f"Count{n}" for n in range(1, 7))
EVERYONE = (*COUNTERS, *GAMES)
MOST_REFUSED_S = 1.0
SHIPPED = (
    "supervisor", "workers", "deploy", "units", "docs", "tests/requirements.lock", "tests/requirements-systemd.lock",
    "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE",
)  # fmt: skip
RELEASES = "/opt/extralife/releases"
SOCKET = "/run/extralife/supervisor.sock"
NEWER = "/srv/newer"
QUICK = ("--ready-s", str(int(25 * PATIENCE)), "--healthy-s", "4")
_DAEMON = "supervisor/shell/daemon.py"
BROKEN = {
    "does not start": [(_DAEMON, "        make_dir(self._paths.state_dir)\n", "        raise OSError(5, 'broken on purpose')\n")],
    "never becomes ready": [
        (_DAEMON, "        server = Server(self.backend", "        threading.Event().wait()\n        server = Server(self.backend")
    ],
    # It has also written what the version before cannot read.
    "answers nothing": [
        (_DAEMON, "        server.start()\n", ""),
        ("supervisor/model/facts.py", "class DaemonStarted(Fact):\n", "class DaemonStarted(Fact):\n    VERSION: ClassVar[int] = 2\n"),
        ("supervisor/model/codec.py", "    if version != cls.VERSION:\n", "    if version > cls.VERSION:\n"),
    ],
}  # fmt: skip


def config() -> str:
    command = f'["{box_python()}", "{CHECKOUT}/tests/lab/counter.py"]'
    counters = "".join(f'[program.{name}]\ncommand = {command}\nprogress = "beat"\n' for name in COUNTERS)
    return CONFIG.replace("slots = 2", "slots = 8") + counters


@pytest.fixture(scope="module", autouse=True)
def _installed(box: Installed) -> None:
    box.write("/etc/extralife/extralife.toml", config())
    box.install()


def pids(box: Installed) -> dict[str, int]:
    """The workers, once every program has one that has told of itself."""

    def look() -> dict[str, int] | None:
        found = box.programs()
        good = [name for name in EVERYONE if found.get(name, {}).get("phase") == "RUNNING" and found[name]["steps"]]
        return {name: found[name]["pid"] for name in EVERYONE} if len(good) == len(EVERYONE) else None

    found: dict[str, int] = until(look, 180, f"everyone to train: {box.tail()}")
    return found


def newer(box: Installed, *changes: tuple[str, str, str], version: str) -> str:
    """A checkout of a newer version, with changes: (file, what stands there, what shall)."""
    box.run("sh", "-c", f"rm -rf {NEWER}; mkdir -p {NEWER}; cd {CHECKOUT}; cp -r --parents {' '.join(SHIPPED)} {NEWER}")
    for file, old, new in (("pyproject.toml", 'version = "0.1.0"', f'version = "{version}"'), *changes):
        box.python(
            "import sys; path, old, new = sys.argv[1:]; text = open(path).read(); assert text.count(old) == 1, path; "
            "open(path, 'w').write(text.replace(old, new))", f"{NEWER}/{file}", old, new,
        )  # fmt: skip
    return NEWER


def upgrade(box: Installed, *options: str) -> tuple[int, str]:
    done = box.run(f"{NEWER}/deploy/upgrade.sh", *QUICK, *options, check=False, timeout_s=300)
    return done.returncode, done.stdout + done.stderr


def current(box: Installed) -> str:
    return box.run("readlink", "/opt/extralife/current").stdout.strip()


def releases(box: Installed) -> list[str]:
    return sorted(box.run("ls", RELEASES).stdout.split())


class Probed:
    """The control socket is asked all the time, inside the box."""

    def __init__(self, box: Installed) -> None:
        self.box, self.saw = box, {}
        box.run("rm", "-f", "/run/probed")
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        prober = f"{CHECKOUT}/tests/lab/prober.py"
        self.saw = json.loads(self.box.run(str(box_python()), prober, SOCKET, "/run/probed", timeout_s=400).stdout)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.box.run("touch", "/run/probed")
        self._thread.join()


def test_an_upgrade_in_place_loses_nobody_and_the_socket_never_refuses(box: Installed) -> None:
    before, old, restarts = pids(box), current(box), {n: p["restarts"] for n, p in box.programs().items()}
    newer(box, version="0.2.0")
    code, said = upgrade(box, "--dry-run")
    assert (code, current(box), releases(box)) == (0, old, [old.rpartition("/")[2]]), said
    assert f"would switch from {old}" in said
    with Probed(box) as probed:
        code, said = upgrade(box)
    saw = probed.saw
    print(said)
    print({name: value for name, value in saw.items() if name not in {"pids", "steps"}})
    assert code == 0, said
    assert "0.2.0" in current(box)
    assert len(saw["daemons"]) == 2, "one image, then the other"
    assert saw["longest_refused_s"] <= MOST_REFUSED_S
    assert saw["refused"] == saw["unanswered"] == 0, saw["why"]
    assert saw["backwards"] == []
    assert saw["pids"] == {name: [pid] for name, pid in before.items()}
    assert pids(box) == before
    assert {n: p["restarts"] for n, p in box.programs().items()} == restarts
    assert box.status()["daemon"]["release"] == current(box)
    assert box.status()["daemon"]["journal"]["damage"] is None
    code, said = upgrade(box)
    assert (code, said) == (0, f"upgrade: {current(box)} is in use already\n")


def test_a_worker_runs_from_the_release_that_it_was_started_from(box: Installed) -> None:
    worker = box.run("cat", f"/proc/{pids(box)['Pong']}/cmdline").stdout
    assert worker.startswith(f"{RELEASES}/0.1.0-"), worker.replace("\0", " ")


def test_the_way_back_by_hand(box: Installed) -> None:
    before, newest = pids(box), current(box)
    code, said = upgrade(box, "--rollback")
    assert code == 0, said
    assert "0.1.0" in current(box)
    assert pids(box) == before
    code, said = upgrade(box, "--rollback")
    assert (code, current(box)) == (0, newest), said


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_version_is_left_again(box: Installed, how: str) -> None:
    before, old, daemon = pids(box), current(box), box.daemon()
    steps = {name: program["steps"] for name, program in box.programs().items()}
    newer(box, *BROKEN[how], version="0.3.0")
    began_s = time.monotonic()
    code, said = upgrade(box)
    print(f"{how}: back after {time.monotonic() - began_s:.1f} s\n{said}")
    assert code == 3, said
    assert f"{old} is in use again" in said
    assert current(box) == old
    assert pids(box) == before
    assert all(program["steps"] >= steps[name] for name, program in box.programs().items())
    assert all(not program["restarts"] for program in box.programs().values())
    assert box.daemon() != daemon
    assert box.status()["daemon"]["release"] == old
    assert box.integrity() == "ok"
    assert ("restoring the journal of that time" in said) == (how == "answers nothing")
    assert box.run("test", "-e", "/opt/extralife/upgrading", check=False).returncode == 1


def test_a_version_that_cannot_be_imported_is_not_even_switched_to(box: Installed) -> None:
    daemon, old = box.daemon(), current(box)
    newer(box, (_DAEMON, "import signal\n", "import signal_\n"), version="0.3.1")
    code, said = upgrade(box)
    assert code == 1, said
    assert (current(box), box.daemon()) == (old, daemon)


def test_one_that_is_interrupted_goes_back_and_one_that_is_killed_is_judged_by_the_next(box: Installed) -> None:
    before, old = pids(box), current(box)
    newer(box, version="0.3.2")
    for signal_, then in (("TERM", old), ("KILL", "/0.3.2-")):
        ended: list[tuple[int, str]] = []
        thread = threading.Thread(target=lambda into=ended: into.append(upgrade(box, "--healthy-s", "600")))
        thread.start()
        until(lambda: "/0.3.2-" in current(box), 90, "the switch")
        until(lambda: box.status().get("daemon", {}).get("release") == current(box), 90, "the daemon to be the new image")
        box.run("pkill", f"-{signal_}", "-o", "-f", f"^bash {NEWER}/deploy/upgrade.sh")
        thread.join()
        assert then in current(box)
        if signal_ == "TERM":
            assert ended[0][0] == 3, ended
            assert "somebody interrupted the upgrade" in ended[0][1]
    code, said = upgrade(box)
    assert code == 0, said
    assert "was interrupted: checking it now" in said
    assert "/0.3.2-" in current(box)
    assert pids(box) == before


def start_upgrade(box: Installed) -> threading.Thread:
    thread = threading.Thread(target=upgrade, args=(box,))
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("when", "then"),
    [
        ("the release is being made", f"ls -d {RELEASES}/0.4.0-*/supervisor && ! ls {RELEASES}/0.4.0-*/.complete"),
        ("it is made and not switched to", f"ls {RELEASES}/0.4.1-*/.complete"),
        ("it is switched to and not judged", "readlink /opt/extralife/current | grep /0.4.2-"),
    ],
)
def test_a_power_cut_in_the_middle_leaves_a_box_that_comes_back(box: Installed, when: str, then: str) -> None:
    pids(box)
    old = current(box)
    version = then.partition("0.4.")[2][0]
    newer(box, version=f"0.4.{version}")
    box.run("sync")  # the checkout is the operator's, and was there long before
    thread = start_upgrade(box)
    until(lambda: box.run("sh", "-c", then, check=False).returncode == 0, 60, when)
    box.cut_power()
    thread.join()
    box.boot()
    pids(box)
    switched = f"/0.4.{version}-" in current(box)
    print(f"{when}: after the power cut {current(box)}")
    assert switched == (version == "2") or current(box) != old
    assert box.status()["daemon"]["release"] == current(box)
    until(lambda: box.run("test", "-e", "/opt/extralife/upgrading", check=False).returncode == 1, 90, "it to be settled")
    if not switched:
        code, said = upgrade(box)
        assert code == 0, said
    assert f"/0.4.{version}-" in current(box)
    assert box.integrity() == "ok"


def test_a_power_cut_under_a_broken_version_is_no_way_into_it(box: Installed) -> None:
    pids(box)
    old = current(box)
    newer(box, *BROKEN["does not start"], version="0.5.0")
    box.run("sync")
    thread = start_upgrade(box)
    until(lambda: "/0.5.0-" in current(box), 60, "the switch")
    box.run("sync")  # a switch that the cut takes back leaves nothing to judge
    assert "/0.5.0-" in current(box), "it was judged before the cut"
    box.cut_power()
    thread.join()
    box.boot()
    until(lambda: current(box) == old, 120, "the boot to judge it and go back")
    pids(box)
    assert box.status()["daemon"]["release"] == old
    journal = ("journalctl", "-u", "extralife-upgrade", "-o", "cat", "--no-pager")
    until(lambda: "is in use again" in box.run(*journal).stdout, 120, "the old one to be judged too")


def test_only_what_is_in_use_and_the_one_before_it_stay(box: Installed) -> None:
    starts = box.show(UNIT, "NRestarts")
    newer(box, version="0.6.0")
    assert upgrade(box)[0] == 0
    newer(box, version="0.6.1")
    wheel = box.run("env", f"PYTHONPATH={PACKAGES}0:{PACKAGES}1", str(box_python()), "-m", "pip", "wheel", "-q", "--no-deps",
                    "--no-build-isolation", "-w", "/srv/wheels", NEWER)  # fmt: skip
    code, said = upgrade(box, "--from", "/srv/wheels/extralife-0.6.1-py3-none-any.whl")
    assert code == 0, said + wheel.stdout + wheel.stderr
    shipped = f"find {' '.join(SHIPPED)} -type f -printf '%p %m\\n' | grep -v pyc | sort"
    inside = [box.run("sh", "-c", f"cd {where} && {shipped}").stdout.splitlines() for where in (NEWER, current(box))]
    assert [line for line in inside[0] if "egg-info" not in line] == inside[1], "a wheel has all that a checkout has"
    started_from = box.run("cat", f"/proc/{pids(box)['Pong']}/cmdline").stdout.split("/.venv")[0].rpartition("/")[2]
    assert {name.partition("-")[0] for name in releases(box)} == {"0.6.0", "0.6.1", started_from.partition("-")[0]}
    assert "for now: workers still run from it" in said
    assert box.show(UNIT, "NRestarts") == starts
    kept = box.run("sh", "-c", f"ls {STATE}").stdout
    assert "journal.sqlite.of-0.6.0" in kept
