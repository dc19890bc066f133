"""What the entrypoint of a container costs: beside the same installation without it, in real containers, in one run.

    sudo .venv/bin/python bench/container.py             # two installations of each kind: about 6 minutes
    sudo .venv/bin/python bench/container.py --rounds 1

* From an empty container until two games train: the entrypoint on an empty volume, and `deploy/try` in a fresh clone. Both
  install from pip's index, without a cache of their own.
* From the volume until the daemon serves: the entrypoint, and the daemon alone, each three times a round.
The kinds take turns, so other load and a warm proxy affect both alike.

Ends with status 1 if the entrypoint adds more than 10 s to the first, or 5 s to the second (medians). Prints seconds, and
writes bench/results/container.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sides import ROOT, table, write_json

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/containers")]

from containerbox import ENTRYPOINT, Box, configuration_of_pip, podman, unfit, until  # noqa: E402

NEEDED_S = 900.0
MOST_S = {"from nothing": 10.0, "from the volume": 5.0}
CLONE, HOME = "/srv/clone", "/workspace/extralife"
NO_PACKAGES = ("--env", "EXTRALIFE_PACKAGES=", "--env", f"PYTHON={sys._base_executable}")  # type: ignore[attr-defined]
FRESH = ("--env", "PIP_CACHE_DIR=/tmp/fresh", "--env", "UV_CACHE_DIR=/tmp/fresh")
DAEMON = (f"{HOME}/current/.venv/bin/python", "-P", "-m", "supervisor", "-c", f"{HOME}/extralife.toml")
FILES = "supervisor workers deploy units docs tests/*.lock *.md pyproject.toml"
PLAIN = ("sh", "-c", f"mkdir {CLONE}; cd {ROOT}; cp -r --parents {FILES} {CLONE}; cd {CLONE} && exec deploy/try")


def wait_for(look: Callable[[], bool], what: str, box: Box) -> None:
    def lives_and_is_so() -> bool:
        assert podman("inspect", "--format", "{{.State.Running}}", box.name).stdout.strip() == "true", box.said()
        return look()

    until(lives_and_is_so, NEEDED_S, what, box.said)


def two_train(box: Box, *ctl: str) -> bool:
    done = podman("exec", box.name, *ctl, "status", "--json", check=False)
    try:
        programs = json.loads(done.stdout).get("programs", [])
    except ValueError:
        return False
    return sum(bool(each["steps"] and each["worker_phase"] == "training") for each in programs) >= 2


def from_nothing_s(box: Box, *, plain: bool) -> float:
    pip = ("--network", "host", *configuration_of_pip())
    began = time.monotonic()
    if plain:
        box.run(*pip, *NO_PACKAGES, *FRESH, command=PLAIN)
        ctl = (f"{CLONE}/.venv/bin/extralifectl", "-c", f"{CLONE}/extralife.toml")
    else:
        box.run(*pip, *NO_PACKAGES, command=(ENTRYPOINT,))
        ctl = ("/workspace/extralife/extralifectl",)
    wait_for(lambda: two_train(box, *ctl), "two games that train", box)
    return time.monotonic() - began


def from_the_volume_s(box: Box, command: tuple[str, ...]) -> float:
    began = time.monotonic()
    box.run(*NO_PACKAGES, command=command)
    wait_for(lambda: " serving " in box.said(), "the daemon", box)
    took_s = time.monotonic() - began
    box.stop(20)
    return took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    if why := unfit():
        sys.exit(why)
    found: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in MOST_S}
    for number in range(rounds):
        for plain in (number % 2 == 0, number % 2 == 1):
            box = Box(Path(tempfile.mkdtemp(prefix="container-")))
            shutil.rmtree(box.home)
            try:
                found["from nothing"][plain].append(from_nothing_s(box, plain=plain))
                box.stop(20)
                for _ in range(0 if plain else 3):
                    for each, command in enumerate(((ENTRYPOINT,), DAEMON)):
                        found["from the volume"][each].append(from_the_volume_s(box, command))
            finally:
                box.close()
                shutil.rmtree(box.volume)
    medians = [{kind: statistics.median(sides[side]) for kind, sides in found.items()} for side in (0, 1)]
    more_s = {kind: medians[0][kind] - medians[1][kind] for kind in found}
    print(table({"entrypoint": medians[0], "without it": medians[1], "more": more_s, "at most": MOST_S}))
    print(json.dumps(found))
    write_json("container", found)
    return int(any(more_s[kind] > MOST_S[kind] for kind in found))


if __name__ == "__main__":
    sys.exit(main())
