"""The dashboard of a real daemon: a killed worker is on the screen within a moment, a request works, a dead daemon greys it."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
from box import PATIENCE, Box
from tools import BROWSER_ARGS, browser_path
from tunnels import tunnel


def test_a_browser_on_a_real_daemon(box: Box) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install -r tests/requirements-browser.lock")
    chromium = browser_path()
    if chromium is None:
        pytest.skip("needs a real browser: apt-get install chromium-headless-shell (on Ubuntu: snap install chromium)")
    box.config(Box.trainer("alpha") + Box.trainer("beta"))
    box.start()
    worker = box.wait_phase("alpha", "RUNNING")["pid"]
    with tunnel(box.runtime / "supervisor.sock") as port, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_ARGS)
        page = browser.new_page()
        page.set_default_timeout(20_000 * PATIENCE)
        page.goto(f"http://localhost:{port}/")
        page.get_by_role("row", name=re.compile("alpha training")).wait_for()
        page.get_by_role("row", name=re.compile("beta training")).wait_for()

        os.kill(worker, signal.SIGKILL)
        killed_s = time.monotonic()
        page.get_by_role("row", name=re.compile("alpha (starting|restarts soon)")).or_(
            page.get_by_role("button", name=re.compile("killed from outside"))
        ).first.wait_for()
        print(f"on the screen {time.monotonic() - killed_s:.2f} s after the kill")
        page.get_by_role("button", name=re.compile("killed from outside alpha")).wait_for()

        page.get_by_role("link", name="beta", exact=True).click()
        page.get_by_role("button", name="Stop …").click()
        page.get_by_role("button", name="Stop beta").click()
        page.get_by_role("dialog").get_by_text("beta: stopped").wait_for()
        assert box.program("beta")["phase"] == "STOPPED"
        page.keyboard.press("Escape")
        page.go_back()
        page.get_by_role("row", name=re.compile("beta stopped")).wait_for()

        box.kill_daemon()
        page.evaluate(
            "() => { const real = Date.now.bind(Date); Date.now = () => real() + 9_000; }"
        )  # the first nine seconds
        page.locator("#live", has_text="No update for").wait_for()
        box.start()
        page.locator("#live", has_text=re.compile("^live$")).wait_for()
        browser.close()
