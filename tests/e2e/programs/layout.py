"""A script of a random layout (`test_layouts.py`). Whatever it writes tells who wrote it: steps are its number modulo 1,000.

`layout.py '{"me": 7, "rows": 300, "kind": "csv", "how": "each", "file": "runs/a.csv", "saves": "runs/a-STEP.pt", "truth": ...}'`
writes rows until there are so many, and saves now and then. It notes in `truth` from which checkpoint it starts, and its
last step, so that a test can compare these with what the daemon shows.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

plan = json.loads(sys.argv[1])
me, kind, how = int(plan["me"]), plan["kind"], plan["how"]
file, truth, saves = Path(plan["file"]), Path(plan["truth"]), Path(plan["saves"])
names = ("step", "loss", "reward", f"own{me}")


def row_of(step: int) -> str:
    numbers = (step, plan["loss"] or me + 0.5, me, me)
    return json.dumps(dict(zip(names, numbers, strict=True))) if kind == "json" else ",".join(map(str, numbers))


def write_child() -> None:
    """The rows of its standard input, for the method `child`: a process of its own has the file."""
    for line in sys.stdin:
        with file.open("a") as table:
            table.write(line)


def write(row: str) -> None:
    if how == "open":
        opened.write(f"{row}\n")
    elif how == "child":
        child.stdin.write(f"{row}\n")
    elif how == "shell":  # a process for each row
        subprocess.run(["sh", "-c", 'printf "%s\\n" "$1" >> "$2"', "sh", row, str(file)], check=True)
    elif how == "replace":
        aside = file.with_name(f"{file.name}.{me}~")
        aside.write_text((file.read_text() if file.exists() else "") + f"{row}\n")
        aside.replace(file)
    else:
        with file.open("a") as table:
            table.write(f"{row}\n")


if sys.argv[2:] == ["child"]:
    write_child()
    raise SystemExit
given = os.environ.get("EXTRALIFE_RESUME", "")
own = {int(re.search(r"-(\d+)\.pt$", path.name)[1]): path for path in saves.parent.glob(saves.name.replace("STEP", "*"))}
step = max(own, default=me)
note = os.open(truth, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(note, (json.dumps({"given": given, "newest": str(own[step].absolute()) if own else ""}) + "\n").encode())
time.sleep(plan["late_s"])
file.parent.mkdir(parents=True, exist_ok=True)
saves.parent.mkdir(parents=True, exist_ok=True)
is_new = not file.exists()
if how == "open" and kind in ("json", "csv"):
    opened = file.open("a", buffering=1)
if how == "child":
    child = subprocess.Popen([sys.executable, __file__, sys.argv[1], "child"], stdin=subprocess.PIPE, text=True, bufsize=1)
if kind == "events":
    from tensorboardX import SummaryWriter

    board = SummaryWriter(str(file), flush_secs=1)
elif kind == "csv" and is_new:
    write(",".join(names))
while step < 1000 * plan["rows"]:
    step += 1000
    if kind == "events":
        for name, value in zip(names[1:], (plan["loss"] or me + 0.5, me, me), strict=True):
            board.add_scalar(name, float(value), step)
    elif kind == "log":
        print(f"step={step} loss={plan['loss'] or me + 0.5} reward={me}", flush=True)
    else:
        write(row_of(step))
    with open(os.devnull, "w") as elsewhere:
        elsewhere.write("a line of a log, as long as a row of figures and a bit longer\n" * random.randint(0, 2))
    os.write(note, f"{step}\n".encode())
    if step // 1000 % 40 == 0:
        aside = saves.with_name(f"{me}.aside")
        with zipfile.ZipFile(aside, "w") as saved:
            saved.writestr("step", str(step))
        aside.replace(str(saves).replace("STEP", str(step)))
    time.sleep(random.uniform(0.1, 0.3))
if kind == "events":
    board.close()
elif how == "child":
    child.stdin.close()
    child.wait()
