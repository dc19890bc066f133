"""The address of `extralifectl dashboard` in a real browser: it opens the dashboard once, also from a web terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tools import ROOT


def test_the_address_opens_the_dashboard_from_a_link_of_another_site_and_only_once(browser: Any, served: Any) -> None:
    socket = served[0].host.runtime_dir / "supervisor.sock"
    command = [sys.executable, "-m", "supervisor.ctl", "-s", f"unix://{socket}", "dashboard"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)) as forwarder:
        try:
            assert forwarder.stdout is not None
            address = forwarder.stdout.readline().strip()
            home = address.partition("/login/")[0] + "/"
            first, second = browser.new_context(), browser.new_context()
            page = first.new_page()
            page.goto(f"data:text/html,<a href='{address}'>in a web terminal</a>")
            page.click("a")
            page.wait_for_url(home)
            page.get_by_text("live", exact=True).wait_for()  # the stream passes
            (cookie,) = first.cookies()
            assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
            page = second.new_page()
            assert page.goto(home).status == 403
            assert page.goto(address).status == 403
            assert "run `extralifectl dashboard` again" in page.inner_text("body")
            first.close()
            second.close()
        finally:
            forwarder.kill()
