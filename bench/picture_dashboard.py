"""The pictures of the dashboard in README: real games with four faults, in Chromium, light and dark.

    python bench/picture_dashboard.py      # an hour; writes docs/pictures/dashboard-light.png and dashboard-dark.png
    python bench/picture_dashboard.py --minutes 5 --out DIRECTORY
    python bench/picture_dashboard.py --every-page --out DIRECTORY      # every page on five widths instead, to look at

A real daemon trains four games, on a ladder that two cores can carry, and climbs it. The faults: a worker killed, a worker
suspended, a power cut (everything killed at once, a minute of downtime, another boot id), the daemon killed, and the daemon
stopped for a minute while a worker is killed. All data on the page is real except the price of an hour.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / each) for each in ("", "bench", "tests", "tests/api")]

from picture import PICTURES, Box, until
from PIL import Image
from playwright.sync_api import sync_playwright
from tools import BROWSER_ARGS, browser_path
from tunnels import tunnel

WIDTH, HEIGHT = 1280, 900
COLOURS = 128  # enough for this page, and the file has a third of the size
MOST_BYTES = 300_000  # of both files together
FAULTS = {0.2: "kill", 0.35: "suspend", 0.5: "cut", 0.7: "daemon", 0.85: "absence"}  # share of the time -> fault
PAGES = {"overview": "", "program": "/program/Pong", "compare": "/compare?pick=Boxing,Breakout,Freeway,Pong", "box": "/box"}
WIDTHS = (390, 768, 1024, 1440, 2560)
DOWN_S = 60.0
CONFIG = """\
[daemon]
state_dir = "{state}"
runtime_dir = "{runtime}"
[load]
mode = "climb"
[levels.light]
slots = 2
num_envs = 8
batch_size = 128
[levels.medium]
slots = 3
num_envs = 16
batch_size = 256
[levels.heavy]
slots = 4
num_envs = 32
batch_size = 512
[checkpoint]
max_s = 60
[training]
algo = "pqn"
steps = 3_000_000
[cost]
usd_per_hour = 1.2
[program.Breakout]
[program.Boxing]
[program.Freeway]
[program.Pong]
"""


def night(box: Box, minutes: float) -> None:
    """Train for `minutes` with the faults; prints each fault."""
    began_s = time.monotonic()
    box.power_on()
    for share, fault in FAULTS.items():
        until_share(began_s, minutes, share)
        print(f"{60 * minutes * share:.0f} s: {fault}", flush=True)
        inject_fault(box, fault)
    until_share(began_s, minutes, 1.0)


def until_share(began_s: float, minutes: float, share: float) -> None:
    time.sleep(max(0.0, began_s + 60.0 * minutes * share - time.monotonic()))


def inject_fault(box: Box, fault: str) -> None:
    if fault == "cut":
        box.cut_power()
        time.sleep(DOWN_S)
        box.power_on()
    elif fault == "daemon":
        os.kill(box.pid(), signal.SIGKILL)
        time.sleep(2.0)
        box.start()
    elif fault == "absence":
        worker = box.pid(running(box)[0])
        os.kill(box.pid(), signal.SIGTERM)
        os.kill(worker, signal.SIGKILL)
        time.sleep(DOWN_S)
        box.start()
    else:
        until(lambda: len(running(box)) > 0, "a game that trains")
        os.kill(box.pid(running(box)[0]), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def running(box: Box) -> list[str]:
    lines = [line.split() for line in box.ctl("status").splitlines()]
    return [words[0] for words in lines if words[1:2] == ["RUNNING"]]


def shoot(socket: Path, out: Path) -> int:
    """Save the page in both colour schemes; returns the size of both files in bytes."""
    total = 0
    with tunnel(socket) as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=BROWSER_ARGS)
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, timezone_id="UTC"
            )
            page = context.new_page()
            page.goto(f"http://localhost:{port}/")
            page.locator("#cost .days").wait_for()
            page.mouse.wheel(0, HEIGHT)
            page.locator("#broke .timeline canvas").wait_for()
            page.mouse.wheel(0, -HEIGHT)
            page.locator("#well canvas").first.wait_for()
            shot = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")
            file = out / f"dashboard-{scheme}.png"
            shot.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
            total += file.stat().st_size
            print(f"{file}: {shot.width} x {shot.height}, {file.stat().st_size} bytes")
        browser.close()
    return total


def shoot_all(socket: Path, out: Path) -> int:
    """Save every page on every width in both colour schemes."""
    with tunnel(socket) as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=BROWSER_ARGS)
        for scheme, width, (name, words) in itertools.product(("light", "dark"), WIDTHS, PAGES.items()):
            context = browser.new_context(
                viewport={"width": width, "height": HEIGHT}, color_scheme=scheme, timezone_id="UTC"
            )
            context.set_default_timeout(120_000)
            page = context.new_page()
            page.goto(f"http://localhost:{port}/#{words}")
            page.locator("canvas").first.wait_for()
            if not words:
                page.locator("#cost .days").wait_for()
            for _ in range(1 + page.evaluate("document.body.scrollHeight") // HEIGHT):  # a chart is drawn when it is seen
                page.mouse.wheel(0, HEIGHT)
                page.wait_for_timeout(150)
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=out / f"{name}-{width}-{scheme}.png", full_page=True)
            context.close()
        browser.close()
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument("--every-page", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="extralife-picture-") as name:
        box = Box(Path(name), CONFIG)
        try:
            night(box, given.minutes)
            total = (shoot_all if given.every_page else shoot)(Path(name) / "run" / "supervisor.sock", given.out)
        finally:
            box.ctl("shutdown")
            box.cut_power()
    if total > MOST_BYTES:
        raise SystemExit(f"picture: {total} bytes in all, {MOST_BYTES} are allowed")


if __name__ == "__main__":
    main()
