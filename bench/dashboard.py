"""The dashboard's cost in a browser, compared with TensorBoard on the same curves.

    python bench/dashboard.py              # a minute or two
    python bench/dashboard.py --day        # also a simulated day of updates in one open page: some minutes more
    python bench/dashboard.py --first      # only: how soon the first sentence and the whole page stand, with 106 programs

A simulated box with 500 programs (50 games with ten seeds) has trained for some time; the real API serves its data. The page
is opened five times in Chromium, each time with an empty cache. Times are measured until the first contentful paint, and
until the table and six charts are drawn. It also measures the page's transfer size and, with `--day`, the growth of its
memory over 86,400 changes of the stream and 1,440 refreshed curves.

With `--first` the box has 106 programs that have trained for five days, with a reboot and a stall a day. The record has
readings of 10 s of the last six hours and of a minute of two days, as a daemon's. The aims: the first sentence within 0.4 s,
all panels with their charts within 2 s. It exits with 1 if a median is above its aim. On a machine with other work the
times mean nothing.

TensorBoard is installed into bench/.envs/tensorboard and reads the same curves from event files: as many programs of those
six games as our charts draw. It is timed until its first paint and until six of its charts are drawn. Memory is the page's
(JavaScript's heap after a collection) and that of TensorBoard's processes; our server is the daemon, which runs anyway.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "api"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "outside"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "browser"))

import inside
import night
from playwright.sync_api import Browser, Page, sync_playwright
from tensorboardX import SummaryWriter
from tools import BROWSER_ARGS, browser_path
from tunnels import tunnel

from workers.scores import REFERENCES

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5
GAMES, SEEDS = 50, 10
TRAINED_S = 1800.0
CHARTS = 6
DAY, PER_REFRESH = 86_400, 60
FIRST_GAMES, FIRST_SEEDS, FIRST_ALONE = 13, 8, 2  # 106 programs
FIRST_DAYS = 5
LOOK_S = 600.0
AIMS_MS = {"first_sentence_ms": 400.0, "complete_ms": 2000.0}
PORT = 16_016
RESULTS = ROOT / "bench" / "results" / "dashboard.json"
ENV = ROOT / "bench" / ".envs" / "tensorboard"

# Stores the time at which the page is complete, by its own clock.
WATCH = """
  const look = () => {
    if (!window.complete && document.body && (READY)) window.complete = performance.now();
    if (!window.complete) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
"""
OURS = (
    f"document.querySelectorAll('#well .plot canvas').length >= {CHARTS} && "
    "document.querySelectorAll('#trained tbody tr').length"
)
SENTENCE = "document.querySelector('#sentence .sentence')?.innerText.trim()"
WHOLE = (
    f"!document.querySelector('#home .waits') && document.querySelectorAll('#well .plot canvas').length >= {CHARTS} && "
    "document.querySelector('#broke .timeline canvas, #broke .calm') && document.querySelector('#cost .days')"
)
THEIRS = f"document.querySelectorAll('line-chart canvas, line-chart svg path').length >= {CHARTS}"
# Replaces the browser's EventSource by a stream that this benchmark feeds.
FED = """
  window.EventSource = class extends EventTarget {
    static CLOSED = 2;
    constructor() { super(); window.stream = this; }
    close() {}
    tell(kind, data) { this.dispatchEvent(new MessageEvent(kind, {data: JSON.stringify(data)})); }
  };
"""
A_DAY = """async ([events, every]) => {
  const app = await import(document.querySelector('script[type=module]').src);
  const whole = await (await fetch('/api/v1/status')).json();
  window.stream.tell('whole', whole);
  const names = whole.programs.map(({name}) => name);
  for (let at = 1; at <= events; at += 1) {
    const news = {steps: 1e6 + at, mean_return: Math.sin(at), uptime_s: at, ckpt_age_s: at % 60};
    const programs = Object.fromEntries(names.map((name) => [name, news]));
    window.stream.tell('change', {programs, now_s: at, wall_s: whole.wall_s + at});
    if (at % every === 0) await app.renew('curves', 'timeline', 'incidents', 'report');
    if (at % 8 === 0) await new Promise(requestAnimationFrame);
  }
}"""


def crowd(where: Path) -> night.Night:
    """500 programs that train at one level."""
    names = sorted(REFERENCES)[:GAMES]
    text = "".join(f"[program.{game}]\nseeds = {list(range(1, SEEDS + 1))}\n" for game in names)
    paths = '[daemon]\nstate_dir = "DIRECTORY/state"\nruntime_dir = "DIRECTORY/run"\nsample_period_s = 10.0\n'
    night.GOALS.update({game: REFERENCES[game] for game in names})
    host = night.Night(
        where, f"{paths}[level]\nslots = {GAMES * SEEDS}\nthreads = 1\n[training]\nsteps = 100_000_000\n{text}"
    )
    host.look_s = 30.0
    host.start()
    host.run(TRAINED_S)
    host.write_down()
    return host


def five_days(where: Path) -> night.Night:
    """106 programs that have trained for five days at one level."""
    names = sorted(REFERENCES)[: FIRST_GAMES + FIRST_ALONE]
    seeds = [list(range(1, FIRST_SEEDS + 1))] * FIRST_GAMES + [[1]] * FIRST_ALONE
    text = "".join(f"[program.{game}]\nseeds = {each}\n" for game, each in zip(names, seeds, strict=True))
    paths = '[daemon]\nstate_dir = "DIRECTORY/state"\nruntime_dir = "DIRECTORY/run"\nsample_period_s = 10.0\n'
    night.GOALS.update({game: REFERENCES[game] for game in names})
    more = "[cost]\nusd_per_hour = 1.29\n[training]\nsteps = 1_000_000_000\n"
    host = night.Night(where, f"{paths}[level]\nslots = {sum(map(len, seeds))}\nthreads = 1\n{more}{text}")
    host.look_s = LOOK_S
    host.start()
    for hour in range(24 * FIRST_DAYS):
        if hour % 24 == 12:
            host.reboot(190.0, "power", "journal ends in the middle")
        if hour % 24 == 18:
            host.worker(f"{names[0]}-s1").stick(host.now_s)
        host.run(3600.0)
        left = 24 * FIRST_DAYS - hour
        every_s = 10 if left <= 6 else 60 if left <= 48 else LOOK_S
        host.pending = {sheet: as_often(rows, every_s) for sheet, rows in host.pending.items()}
        host.write_down()
    host.look_s = 10.0
    host.run(LOOK_S)
    host.write_down()
    return host


def as_often(rows: list[Any], every_s: float) -> list[Any]:
    """Repeat each reading every `every_s` seconds until the next one of its subject: looks are further apart."""
    found, last = [], dict[Any, Any]()
    for row in rows:
        before = last.get(row.keys[:1])
        if before is not None and row.at_s - before.at_s < 2 * LOOK_S:
            shifts = range(1, int((row.at_s - before.at_s) // every_s))
            found += [before._replace(at_s=before.at_s + n * every_s, wall_s=before.wall_s + n * every_s) for n in shifts]
        found.append(row)
        last[row.keys[:1]] = row
    return sorted(found, key=lambda row: row.at_s)


def small(where: Path) -> night.Night:
    return night.night(where)


@contextmanager
def served(make: Any) -> Iterator[tuple[Any, str]]:
    application = inside.Application(lambda: make(inside.directory()))
    application.serve()
    with tunnel(application.host.runtime_dir / "supervisor.sock") as port:
        yield application, f"http://localhost:{port}/"
    application.close()


def heap_mb(page: Page) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    return used / 2**20


def first_look(browser: Browser) -> bool:
    """Print how soon the first sentence and the whole page stand; whether the medians keep their aims."""
    shown: dict[str, list[float]] = {name: [] for name in AIMS_MS}
    early = WATCH.replace("READY", SENTENCE).replace("complete", "first_words")
    with served(five_days) as (_, url):
        for _ in range(ROUNDS):
            page, _, complete_ms = opened(browser, url, WHOLE, f"{{ {early} }}")
            shown["first_sentence_ms"].append(page.evaluate("window.first_words"))
            shown["complete_ms"].append(complete_ms)
            page.context.close()
    for name, each in shown.items():
        print(f"{name:20}{statistics.median(each):8.0f} of {AIMS_MS[name]:.0f} ({min(each):.0f} to {max(each):.0f})")
    return all(statistics.median(each) <= AIMS_MS[name] for name, each in shown.items())


def opened(browser: Browser, url: str, ready: str, *first: str) -> tuple[Page, float, float]:
    """Open a page with an empty cache: (page, ms until the first contentful paint, ms until it is complete)."""
    page = browser.new_context(viewport={"width": 1440, "height": 1600}).new_page()
    for script in (WATCH.replace("READY", ready), *first):
        page.add_init_script(script)
    page.goto(url)
    end_s = time.monotonic() + 60
    while not (complete_ms := page.evaluate("window.complete ?? 0")):
        if time.monotonic() > end_s:
            raise SystemExit(f"{url} was not complete within 60 s")
        page.wait_for_timeout(20)
    paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    return page, paint_ms, complete_ms


def timed(browser: Browser, url: str, ready: str) -> dict[str, Any]:
    """Median, minimum and maximum over ROUNDS openings of the page."""
    paints, completes, heaps = [], [], []
    for _ in range(ROUNDS):
        page, paint_ms, complete_ms = opened(browser, url, ready)
        paints.append(paint_ms)
        completes.append(complete_ms)
        heaps.append(heap_mb(page))
        page.context.close()
    shown = {"first_paint_ms": paints, "complete_ms": completes, "heap_mb": heaps}
    return {name: [round(f(each)) for f in (statistics.median, min, max)] for name, each in shown.items()}


def weight_bytes(browser: Browser, url: str) -> int:
    """Size of all files that the page loads, as transferred."""
    page = browser.new_context().new_page()
    sizes: list[int] = []
    page.on(
        "requestfinished",
        lambda request: sizes.append(request.sizes()["responseBodySize"]) if "/api/" not in request.url else 0,
    )
    page.goto(url)
    page.locator("#trained tbody tr").first.wait_for()
    page.context.close()
    return sum(sizes)


def a_day(browser: Browser, url: str) -> dict[str, float]:
    page, _, _ = opened(browser, url, "window.stream", FED)
    page.evaluate(A_DAY, [2_000, PER_REFRESH])
    before, began_s = heap_mb(page), time.monotonic()
    page.evaluate(A_DAY, [DAY, PER_REFRESH])
    return {"before_mb": before, "grown_mb": heap_mb(page) - before, "took_s": time.monotonic() - began_s}


# --- TensorBoard -----------------------------------------------------------------------------------------------------------


def install() -> Path:
    if not (ENV / "bin" / "tensorboard").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENV)], check=True)
        subprocess.run([ENV / "bin" / "pip", "install", "--quiet", "tensorboard", "setuptools<81"], check=True)
    return ENV / "bin" / "tensorboard"


def write_events(application: Any, where: Path) -> None:
    """Write the curves of our page as event files: one run per program, the same points."""
    names = [f"{game}-s{seed}" for game in sorted(REFERENCES)[:12] for seed in range(1, 7)]
    query = {"subjects": ",".join(names), "series": "mean_return,steps_per_s,loss", "since": "all", "points": "300"}
    found = application.host.backend.page("curves", query)
    for subject in found["subjects"]:
        with SummaryWriter(str(where / subject["program"])) as writer:
            for series, values in subject["series"].items():
                for step, wall_s, value in zip(subject["env_steps"], subject["wall_s"], values["mean"], strict=True):
                    if step is not None and value is not None:
                        writer.add_scalar(f"{series}/{subject['program'].split('-')[0]}", value, int(step), wall_s)


def tensorboard(browser: Browser, application: Any, where: Path) -> dict[str, Any]:
    command = install()
    write_events(application, where)
    process = psutil.Popen(
        [command, "--logdir", str(where), "--port", str(PORT), "--load_fast=false"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://localhost:{PORT}/"
        for _ in range(120):
            if subprocess.run(["curl", "-sf", "-o", "/dev/null", f"{url}data/runs"], check=False).returncode == 0:
                break
            time.sleep(0.5)
        time.sleep(10)  # it reads the event files
        found = timed(browser, f"{url}#timeseries", THEIRS)
        rss = sum(each.memory_info().rss for each in [process, *process.children(recursive=True)])
        return {**found, "server_mb": round(rss / 2**20)}
    finally:
        for each in [*process.children(recursive=True), process]:
            each.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", action="store_true")
    parser.add_argument("--no-tensorboard", action="store_true")
    parser.add_argument("--first", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=BROWSER_ARGS)
        if chosen.first:
            raise SystemExit(not first_look(browser))
        with served(crowd) as (application, url):
            found["weight_bytes"] = weight_bytes(browser, url)
            found["500 programs"] = timed(browser, url, OURS)
            if not chosen.no_tensorboard:
                where = application.host.where / "events"
                found["tensorboard"] = tensorboard(browser, application, where)
        if chosen.day:
            with served(small) as (_, url):
                found["day"] = a_day(browser, url)
        browser.close()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
