"""The picture of the dashboard in README: a simulated night behind the real API, as Chromium shows it, light and dark.

    python bench/picture_dashboard.py      # half a minute; writes docs/pictures/dashboard-light.png and dashboard-dark.png

The night is the one of the browser's tests (tests/browser/night.py): the daemon's own decisions over simulated workers and a
simulated host, twelve hours in a few seconds. Its learning curves are invented; everything else on the page follows.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "api"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "outside"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "browser"))

import night
from inside import Application, directory
from PIL import Image
from playwright.sync_api import sync_playwright
from tools import BROWSER_ARGS, browser_path
from tunnels import tunnel

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 900
COLOURS = 128  # the page has few, and the file is a third
MOST_BYTES = 300_000  # of both


def main() -> None:
    night.HOSTILE = "[Errno 5] Input/output error"
    application = Application(lambda: night.night(directory()))
    application.serve()
    total = 0
    with tunnel(application.host.runtime_dir / "supervisor.sock") as port, sync_playwright() as playwright:
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
            page.locator("#well canvas").nth(3).wait_for()
            shot = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")
            file = PICTURES / f"dashboard-{scheme}.png"
            shot.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
            total += file.stat().st_size
            print(f"{file}: {shot.width} x {shot.height}, {file.stat().st_size} bytes")
        browser.close()
    application.close()
    if total > MOST_BYTES:
        raise SystemExit(f"picture: {total} bytes in all, {MOST_BYTES} are allowed")


if __name__ == "__main__":
    main()
