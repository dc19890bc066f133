"""A night served to a real browser. One browser and one night for all of these tests: both take seconds to make.

This directory is a package, so that pytest closes the browser before other tests: playwright's event loop runs until then, and
a test that wants a loop of its own in the same process would fail.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import BROWSER_ARGS, PATIENCE, ROOT, browser_path

sys.path.append(str(ROOT / "tests" / "browser"))
SHOTS = Path(os.environ.get("EXTRALIFE_SCREENSHOTS", ROOT / "tests" / "browser" / "screenshots"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: .venv/bin/pip install -r tests/requirements-browser.lock"
    )
    path = browser_path()
    if path is None:
        pytest.skip("needs a real browser: apt-get install chromium-headless-shell (on Ubuntu: snap install chromium)")
    with playwright.sync_playwright() as running:
        made = running.chromium.launch(executable_path=path, args=BROWSER_ARGS)
        yield made
        made.close()


@pytest.fixture(scope="package")
def served() -> Iterator[Any]:
    """(application, port): the night behind what `ssh -L` makes of its socket."""
    from inside import Application, directory
    from night import night
    from tunnels import tunnel

    application = Application(lambda: night(directory()))
    application.serve()
    with tunnel(application.host.runtime_dir / "supervisor.sock") as port:
        yield application, port
    application.close()


class Opened:
    """A page of the dashboard that has been opened, and everything that its console complained about."""

    def __init__(self, context: Any, port: int, words: str, script: str) -> None:
        self.context, self.port = context, port
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._told)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if script:
            self.page.add_init_script(script)
        self.page.goto(f"http://localhost:{port}/{words and '#' + words}")

    def _told(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")


@pytest.fixture
def opened(browser: Any, served: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """`opened(words, width=, height=, scheme=, script=)` opens the page in a context of its own. No console may complain."""
    _, port = served
    made: list[Opened] = []

    def open_one(
        words: str = "", *, width: int = 1440, height: int = 900, scheme: str = "light", script: str = "", **more: Any
    ) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC", **more
        )
        context.set_default_timeout(15_000 * PATIENCE)
        made.append(Opened(context, port, words, script))
        return made[-1]

    yield open_one
    complaints = [each for one in made for each in one.complaints]
    for one in made:
        one.context.close()
    if request.node.get_closest_marker("complains") is None:
        assert not complaints


@pytest.fixture
def shot(request: pytest.FixtureRequest) -> Any:
    """Keep a picture of a page, for people to look at. CI has none."""

    def take(page: Any, name: str, *, whole: bool = True) -> None:
        if "CI" not in os.environ:
            SHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)

    return take
