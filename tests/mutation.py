"""Mutants: small faults that a tool puts into the code, one at a time. A good test suite fails for each of them.

    tests/mutants                          every part, each to its end (days on two cores)
    tests/mutants policy core              these parts
    tests/mutants policy --minutes 5       stops after five minutes; the next call goes on from there
    tests/mutants policy --again           only those that survived last time, after new assertions
    tests/mutants --sample 100 --seed 7    100 mutants of all parts (or of those that are named), drawn by that seed

It ends with a table, and with every survivor that tests/mutants.toml does not judge, as an entry for that file.
Exit status: 0, or 1 when there is such a survivor, or 2 when the tests fail without any mutant.

mutmut makes the mutants and runs the tests. This file gives it a copy of the tree for each part below build/mutants, draws
the samples, and keeps the faulty code from harming the box: processes of its own (a PID namespace, where that is allowed),
files of at most 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mutmut
from mutmut.configuration import reset_config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
JUDGED = ROOT / "tests" / "mutants.toml"
MOST_FILE_BYTES = 2 << 30
CALLS = "EXTRALIFE_MUTANTS_CALLS"
CHILD = """\
# Run by every Python that a test starts. mutmut's own code for this fails there: it looks for a pyproject.toml.
import os

if os.environ.get("MUTANT_UNDER_TEST") == "stats":
    from mutmut.mutation import trampoline

    seen = set()
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]

    def record(name, caller=None):
        if name not in seen:
            seen.add(name)
            try:
                calls = os.open(os.environ["EXTRALIFE_MUTANTS_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                os.write(calls, f"{name}\\t{test}\\n".encode())
                os.close(calls)
            except (KeyError, OSError):
                pass  # it is the test that matters

    trampoline.record_trampoline_hit = record
"""
PLUGIN = """\
# A plugin of pytest: the fastest test first, so that most mutants are killed within a second. mutmut prints nothing of a test
# that fails without a mutant, so it is written down here.
import contextlib
import json
import os

import pytest
from mutmut.core import MutmutCallStack


def leave(token, reset=MutmutCallStack.reset):
    with contextlib.suppress(LookupError):  # a finaliser that ran in between has left already
        reset(token)


MutmutCallStack.reset = leave

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    try:
        with open("mutmut-stats.json") as stats:
            seconds = json.load(stats)["duration_by_test"]
    except FileNotFoundError:
        return  # the tests run for the first time
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))


def pytest_runtest_logreport(report):
    if report.failed and os.environ.get("MUTANT_UNDER_TEST") in ("", "stats"):
        with open("../failed", "a") as out:
            out.write(f"{report.nodeid} ({report.when})\\n{report.longreprtext}\\n")


pytest_collectreport = pytest_runtest_logreport
"""
_TEXT = re.compile(r'"([^"\\\\]*)"')
_CODECS = {"utf-8", "utf-8-sig", "ascii", "latin-1"}
_SQL = {"SELECT", "PRAGMA", "INSERT", "UPDATE", "DELETE", "CREATE", "BEGIN", "COMMIT", "ROLLBACK", "VACUUM", "DROP"}
ORDINARY = "not slow and not lab and not root and not slurm and not containers"
NONE = "no.such.mutant"  # mutmut makes the mutants and learns which test runs which function, and then finds nothing to run
NAMES_AT_ONCE = 500  # of one command line
PARTS = {  # the code, and the tests that ought to kill what is wrong in it
    "policy": (["supervisor/policy"], ["tests/policy"]),
    "core": (["supervisor/model", "supervisor/deciding", "supervisor/reports"], ["tests/core"]),
    "config": (["supervisor/config"], ["tests/config"]),
    "api": (["supervisor/api"], ["tests/api", "tests/ctl/test_report_page.py"]),
    "slurm": (["supervisor/features/slurm/adapters"], ["tests/slurm", "tests/adapters/slurm"]),
    "adapters": (["supervisor/adapters"], ["tests/adapters"]),  # those that are in no part before
    "shell": (
        ["supervisor/shell", *(f"supervisor/{name}.py" for name in ("files", "filesystems", "image", "lack", "records", "trust"))],
        [f"tests/adapters/**/test_{name}.py" for name in (
            "backup_thread", "clock", "foundations", "housekeeping", "loop_and_journal", "notices", "offsite_thread", "presence",
            "shim", "spare_threads",
        )] + [f"tests/e2e/test_{name}.py" for name in ("adoption", "bad_input", "health", "last_config", "operator", "signals_and_files")]
        + ["tests/test_trust.py", "tests/test_filesystems.py", "tests/test_image.py", "tests/sim/test_stories.py"],
    ),
    "storage": (
        [f"workers/{name}.py" for name in ("checkpoint", "store", "replay", "rollout", "records", "results", "contract", "prefetch")],
        [f"tests/workers/test_{name}.py" for name in (
            "checkpoint", "store", "replay", "replay_widths", "rollout", "records", "results", "beats", "manifest", "client_calls",
            "prefetch", "resume_exact", "dqn", "on_policy",
        )] + ["tests/adapters/test_controls.py"],
    ),
    "learning": (
        [f"workers/{name}.py" for name in (
            "acting", "algorithms/__init__", "algorithms/dqn", "algorithms/ppo", "algorithms/pqn", "learner", "networks", "on_policy",
            "optimizers", "precision", "schedules", "stopwatch",
        )],
        [f"tests/workers/test_{name}.py" for name in (
            "acting", "auto", "dqn", "figures", "learner", "networks", "on_a_device", "on_policy", "optimizers", "precision",
            "schedules", "stopwatch", "resume_exact",
        )],
    ),
}  # fmt: skip
ALONE = {  # left out: the tests run them in a Python without site-packages, so without mutmut
    "supervisor/shim.py",
    "supervisor/features/slurm/adapters/node.py",
    *(
        f"supervisor/adapters/{name}.py"
        for name in ("__init__", "figures/__init__", "figures/child", "figures/reading", "tfrecord")
    ),
}


@dataclass(frozen=True)
class Mutant:
    part: str
    name: str  # mutmut's, such as supervisor.policy.box.gate.x_check__mutmut_7
    status: str  # killed, timeout, survived, no tests, not checked ...


@dataclass(frozen=True)
class Change:
    """What a mutant is, apart from its number, which moves with every edit above it."""

    file: str
    function: str
    was: str
    now: str


# --- the copies ----------------------------------------------------------------------------------------------------------


def expanded(patterns: list[str]) -> list[str]:
    """Files and directories of the tree, as given or by their pattern."""
    found: set[str] = set()
    for pattern in patterns:
        matches = {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)}
        if not matches:
            sys.exit(f"tests/mutants: {pattern} names no file: correct PARTS in {Path(__file__).name}")
        found |= matches
    return sorted(found)


def sources(part: str) -> list[str]:
    """The Python files of a part; a file belongs to the first part that names it."""
    files: list[str] = []
    for name, (patterns, _) in PARTS.items():
        named = expanded([*patterns, *(f"{pattern}/**/*.py" for pattern in patterns if not pattern.endswith(".py"))])
        new = [path for path in named if path.endswith(".py") and path not in files and path not in ALONE]
        if name == part:
            return new
        files += new
    raise KeyError(part)


def copy_tree(part: str) -> Path:
    """The tracked and the new files of the tree, brought up to date; what mutmut made there before stays."""
    where = WORK / part
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    tree = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in tree:
        source, target = ROOT / name, where / name
        if name != "pyproject.toml" and not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)  # with the time of now: mutmut makes anew what is newer than its mutants
    for base in (where, where / "mutants"):
        base.mkdir(exist_ok=True)
        (base / "sitecustomize.py").write_text(CHILD)
        (base / "mutants_plugin.py").write_text(PLUGIN)
        if not (base / ".venv").is_symlink():
            (base / ".venv").symlink_to(ROOT / ".venv")
        for found in (path for top in ("supervisor", "workers", "tests") for path in (base / top).rglob("*.py")):
            if str(found.relative_to(base)) not in tree:
                found.unlink()
    (where / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings(part))
    for part_of_mutmut in Path(mutmut.__file__).parents[1].glob("mutmut*"):  # for a Python without site-packages
        if not (where / "mutants" / part_of_mutmut.name).is_symlink():
            (where / "mutants" / part_of_mutmut.name).symlink_to(part_of_mutmut)
    return where


def settings(part: str) -> str:
    """The [tool.mutmut] of a part. Tests may take five times as long as they did, and 20 s more; without a mutant, an hour each."""
    paths = sorted({path.split("/")[0] for path in sources(part)})
    also = [*{"supervisor", "workers"} - {*paths}, "README.md", "CHANGELOG.md", "bench", "deploy", "docs", "units"]
    values = {
        "source_paths": paths, "only_mutate": sources(part), "also_copy": also,
        "pytest_add_cli_args": ["-m", ORDINARY, "-p", "no:cacheprovider", "--hypothesis-profile=mutants", "-o", "timeout=3600"],
        "pytest_add_cli_args_test_selection": expanded(PARTS[part][1]), "timeout_multiplier": 5.0, "timeout_constant": 4.0,
        "use_git_change_detection": False, "on_dependency_change": "ignore", "process_isolation": "forkserver",
    }  # fmt: skip
    return "\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


# --- running -------------------------------------------------------------------------------------------------------------


def run(where: Path, names: list[str], processes: int, until_s: float) -> int:
    """mutmut's exit status; what it has found so far is on disk if the time is over first."""
    environment = {
        **os.environ, "PYTHONPATH": str(where / "mutants"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        CALLS: str(where / "calls"), "PYTEST_PLUGINS": "mutants_plugin",
    }  # fmt: skip
    mutmut = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *names]
    # Through `cat`: a test limits the size of files, and mutmut writes meanwhile.
    with (where / "log").open("ab") as log, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log) as out:
        started = subprocess.Popen(
            [*apart(), *mutmut], cwd=where, env=environment, stdin=subprocess.DEVNULL, stdout=out.stdin, stderr=out.stdin,
            start_new_session=True,
        )  # fmt: skip
        try:
            return started.wait(timeout=max(1.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return 0
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def apart() -> list[str]:
    """Faulty code may signal any process that it sees, so it sees only its own; empty where that is not allowed."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-current-user"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
        return [*command, "sh", "-c", '"$@"; exit $?', "sh"]  # the first process there inherits orphans: a shell reaps them
    print("tests/mutants: no PID namespace is allowed here: mutants run among the other processes of this user", flush=True)
    return []


def statuses(part: str) -> list[Mutant]:
    base = WORK / part / "mutants"
    return [
        Mutant(part, name, status_by_exit_code[code])
        for path in sources(part)
        if (base / f"{path}.meta").exists()
        for name, code in json.loads((base / f"{path}.meta").read_text())["exit_code_by_key"].items()
    ]


def prepare(part: str, processes: int) -> None:
    """Make the mutants of a part, and learn which test runs which function: all of its tests run once."""
    where = copy_tree(part)
    for name in ("log", "failed", "calls"):
        (where / name).unlink(missing_ok=True)
    (where / "calls").touch()
    (where / "calls").chmod(0o666)  # some tests start programs as another user
    run(where, [NONE], processes, time.monotonic() + 3600.0)
    log = (where / "log").read_text(errors="replace")
    if "nothing matches" not in log:  # mutmut's last words when all went well: there is no such mutant
        print((where / "failed").read_text(errors="replace")[-6000:] if (where / "failed").exists() else log[-6000:])
        print(f"tests/mutants: the tests of {part} fail without any mutant, see {where}, files failed and log")
        sys.exit(2)
    count_calls_of_children(where)


def count_calls_of_children(where: Path) -> None:
    """Tell mutmut which functions a test runs in a process that it starts: mutmut looks at its own process only."""
    path = where / "mutants" / "mutmut-stats.json"
    known = json.loads(path.read_text())
    for line in (where / "calls").read_text(errors="replace").splitlines():
        function, _, test = line.partition("\t")
        tests = known["tests_by_mangled_function_name"].setdefault(function, [])
        if test in known["duration_by_test"] and test not in tests:
            tests.append(test)
    path.write_text(json.dumps(known, indent=4))


def check(part: str, names: list[str], processes: int, until_s: float) -> None:
    for begin in range(0, len(names), NAMES_AT_ONCE):
        if time.monotonic() < until_s:
            (WORK / part / "log").unlink(missing_ok=True)
            if run(WORK / part, names[begin : begin + NAMES_AT_ONCE], processes, until_s) != 0:
                print((WORK / part / "log").read_text(errors="replace")[-3000:])
                print(f"tests/mutants: mutmut has ended before its time, see {WORK / part / 'log'}")
                sys.exit(2)


# --- what came of it -------------------------------------------------------------------------------------------------------


def change_of(mutant: Mutant) -> Change:
    before = Path.cwd()
    os.chdir(WORK / mutant.part)
    reset_config()  # mutmut keeps the settings of the part before, which say where mutants are
    try:
        lines = get_diff_for_mutant(mutant.name).splitlines()
    finally:
        os.chdir(before)
    file = next(line[4:].strip() for line in lines if line.startswith("--- ")).removeprefix("a/")
    was, now = ("\n".join(line[1:].strip() for line in lines if line[:1] == sign and line[:3] != sign * 3) for sign in "-+")
    function = mutant.name.rpartition(".")[2].rpartition("__mutmut_")[0].removeprefix("x_").removeprefix("x")
    return Change(file, function.replace("ǁ", ".").strip("."), was, now)


def judged() -> dict[Change, str]:
    entries = tomllib.loads(JUDGED.read_text())["survivor"]
    return {Change(each["file"], each["function"], each["was"], each["now"]): each["reason"] for each in entries}


def only_spelled_otherwise(change: Change) -> bool:
    """Whether the change is of capital letters alone, in a name of a codec or in SQL outside of its quoted texts.

    Python and SQLite read both spellings alike, so that no test can tell them apart.
    """
    pairs = [
        (was, now) for was, now in zip(_TEXT.findall(change.was), _TEXT.findall(change.now), strict=False) if was != now
    ]
    if _TEXT.sub("", change.was) != _TEXT.sub("", change.now) or len(pairs) != 1:
        return False
    (was, now), *_ = pairs
    if was.lower() in _CODECS:
        return was.lower() == now.lower()
    folded = ["".join(part if odd % 2 else part.lower() for odd, part in enumerate(text.split("'"))) for text in (was, now)]
    return was.split(" ")[0] in _SQL and folded[0] == folded[1]


def entry(change: Change) -> str:
    fields = {"file": change.file, "function": change.function, "was": change.was, "now": change.now, "reason": ""}
    return "[[survivor]]\n" + "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())


def report(mutants: list[Mutant]) -> int:
    """The table and the survivors that nobody has judged; the exit status."""
    known = judged()
    changes = {mutant.name: change_of(mutant) for mutant in mutants if mutant.status in ("survived", "no tests")}
    unjudged = {name: each for name, each in changes.items() if each not in known and not only_spelled_otherwise(each)}
    print("part       mutants  killed  timeout  survived  judged  not run   noticed")
    for part in [*PARTS, "all"]:
        those = [mutant for mutant in mutants if part in (mutant.part, "all")]
        count = Counter(mutant.status for mutant in those)
        ran, late = len(those) - count["not checked"] - count["check was interrupted by user"], count["timeout"]
        alive = [mutant.name for mutant in those if mutant.name in changes]
        fine = len([name for name in alive if name not in unjudged])
        if ran:
            print(
                f"{part:<9} {len(those):>8} {ran - late - len(alive):>7} {late:>8} {len(alive):>9} {fine:>7}"
                f" {len(those) - ran:>8} {(ran - len(alive)) / ran:>9.1%}"
            )
    if unjudged:
        print(f"\n{len(unjudged)} survivors are not judged: write the missing assertion, or a reason into {JUDGED.name}:\n")
        print("\n".join(entry(change) for change in unjudged.values()))
    return int(bool(unjudged))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sample", type=int, metavar="N", help="that many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of the sample (default: by the time)")
    parser.add_argument("--again", action="store_true", help="only those that survived last time")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many; call again to go on")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    parts = args.parts or list(PARTS)
    for part in parts:
        if part not in PARTS:
            parser.error(f"{part} is not a part; there are {', '.join(PARTS)}")
    until_s = time.monotonic() + 60.0 * args.minutes
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))  # of everything that it starts, too
    for part in parts:
        if time.monotonic() < until_s:
            prepare(part, args.processes)
    mutants = [mutant for part in parts for mutant in statuses(part)]
    if args.sample is not None:
        print(f"a sample of {args.sample} of {len(mutants)} mutants, --seed {args.seed}", flush=True)
        mutants = random.Random(args.seed).sample(mutants, min(args.sample, len(mutants)))
    elif args.again:
        mutants = [mutant for mutant in mutants if mutant.status in ("survived", "no tests")]
    names = {mutant.name for mutant in mutants}
    for part in parts:
        wanted = [each.name for each in mutants if each.part == part and (args.again or each.status == "not checked")]
        check(part, wanted, args.processes, until_s)
    return report([mutant for part in parts for mutant in statuses(part) if mutant.name in names])


if __name__ == "__main__":
    sys.exit(main())
