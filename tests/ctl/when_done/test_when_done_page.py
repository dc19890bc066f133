"""`when-done` as people run it, over a fake daemon; `status`, which shows the same line."""

import json

from patients import make
from running import ctl

from supervisor.features.when_done import checks as checks_when_done
from supervisor.model.codes import FAILED
from supervisor.model.inputs import Verb

LINE = "all is done (Pong): this box is stopped in 9m 30s (`extralifectl when-done cancel` keeps it)"


def test_the_line_is_shown_by_status_top_and_the_verb_itself(api, backend):
    backend.header["when_done"] = {"cause": "", "left_s": None, "line": "no end is near"}
    assert ctl("when-done", "status", socket=api).stdout == "no end is near\n"
    assert "no end is near" not in ctl("status", socket=api).stdout
    backend.header["when_done"] = {"cause": "done", "left_s": 570.0, "line": LINE}
    assert ctl("when-done", socket=api).stdout == f"{LINE}\n"
    assert json.loads(ctl("when-done", "--json", socket=api).stdout)["left_s"] == 570.0
    backend.header["for_nothing"] = [f"all done since 01:49; the box costs $1.20 an hour; {LINE}"]
    assert backend.header["for_nothing"] == ctl("status", "--wide", socket=api).stdout.splitlines()[:1]


def test_a_word_reaches_the_daemon_and_its_answer_is_shown(api, backend):
    assert ctl("when-done", "delay", "1h30m", socket=api).stdout == "when-done delay: 20261121-033000\n"
    assert json.loads(ctl("when-done", "cancel", "--json", socket=api).stdout)["code"] == 80
    assert [(each[0], each[2]) for each in backend.asked[-2:]] == [(Verb.WHEN_DONE, "delay"), (Verb.WHEN_DONE, "cancel")]


def test_a_refusal_is_an_error(api, backend, monkeypatch):
    monkeypatch.setattr(type(backend), "request", lambda *_: ("now", FAILED, "the command runs already"))
    refused = ctl("when-done", "now", socket=api)
    assert (refused.returncode, refused.stdout) == (1, "when-done now: ERROR (the command runs already)\n")


def test_what_is_no_request(api):
    done = ctl("when-done", "delay", "soon", socket=api)
    assert (done.returncode, done.stdout) == (2, "Error: delay takes a span such as 90s, 45m, 6h or 1h30m, not 'soon'\n")


def test_the_command_that_stops_this_box(tmp_path):
    assert list(checks_when_done.when_done(make(tmp_path))) == []
    script = tmp_path / "stop"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    installation = make(tmp_path, f'[when_done]\ncommand = ["{script}"]\n')
    (found,) = checks_when_done.when_done(installation)
    assert (found.level, found.what) == ("ok", f"{script} stops this box; causes: done")
    script.chmod(0o644)
    (found,) = checks_when_done.when_done(installation)
    assert (found.level, "may not be executed by the daemon" in found.what) == ("bad", True)
    script.unlink()
    (found,) = checks_when_done.when_done(installation)
    assert (found.level, found.do) == ("bad", "correct when_done.command")
