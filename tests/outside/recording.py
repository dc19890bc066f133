"""Asks the daemon of the busy night everything, and compares the answers with the recorded ones."""

from __future__ import annotations

import difflib
import json
import lzma
import os
import re
import shlex
import subprocess
import sys
import xmlrpc.client
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "api"))

import inside
from busy_night import CONFIG, busy_night
from outside_pages import ACTS, ALONE, CALLS, CHANGES, LAST_CALL, READS, SHELL, VERBS, body
from serving import Connection

TESTS = Path(__file__).resolve().parents[1]
RECORDED = Path(__file__).parent / "recorded"
JOURNAL = "journal.jsonl.xz"
ANEW = ".venv/bin/python tests/outside/record.py"
_LINES = 40  # of one difference
_NIGHT = "/dev/shm/xl-night000"  # as long as the real one
_DEAD_FOR_S = 600.0
_EDITED = (
    CONFIG.replace("usd_per_hour = 1.29", "usd_per_hour = 1.59").replace("at_most_per_h = 6", "at_most_per_h = 7")
    .replace("[program.Qbert]\n", "[program.Qbert]\nseed = 3\n").replace("[program.Freeway]\npriority = 50\n", "")
    + "\n[journal]\nkeep_days = 7\n\n[program.Gopher]\npriority = 80\n"
)  # fmt: skip


def normalised(text, where):
    """What cannot be the same everywhere, and why. Keep this short: what is hidden here is not compared."""
    for real, shown in (
        (str(where), _NIGHT),  # each run has a directory of its own
        (shlex.quote(sys.executable), "/usr/bin/python3"),  # the checkout's environment, perhaps below a path with a space
        (sys.executable, "/usr/bin/python3"),
        (str(TESTS.parent), "/opt/extralife"),  # the checkout
    ):
        text = text.replace(real, shown)
    for end in range(len("/dev/shm/xl-"), len(_NIGHT)):  # on a narrow terminal
        text = text.replace(f"{str(where)[:end]}…", f"{_NIGHT[:end]}…")
    # `alerts test` runs a real process.
    return rounded(re.sub(r'("took_s": )[\d.e-]+', r"\1T", text))


def rounded(text):
    """sum() of Python 3.12 rounds otherwise than that of 3.11, and so may the C library of another system."""
    return re.sub(r"(?<![\w.])\d+\.\d{7,}(?:e[-+]?\d+)?", lambda found: f"{float(found[0]):.12g}", text)


class Client:
    """supervisorctl, in `client_host.py`."""

    def __init__(self, host):
        self._host = host
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("client_host.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        )  # fmt: skip

    def page(self, line, *, later_s=0.0, options=(), stdin=""):
        """One command: `status @80` is `supervisorctl status` on a terminal of 80 columns."""
        words = line.split()
        columns = next((int(word[1:]) for word in words if word[0] == "@"), 0)
        where, host = self._host.where, self._host
        env = {
            "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm", "TZ": "XLT-2", "HOME": str(where / "home"),
            "EXTRALIFE_BOOT_FILES": str(where / "boot"),
        }  # fmt: skip
        request = {
            "argv": [*options, *(word for word in words if word[0] != "@")], "env": env, "tty": bool(columns),
            "columns": columns, "stdin": stdin, "wall_s": host.wall_s + later_s,
            "boot_s": host.now_s - host.boot_began_s + later_s,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        parts = [f"$ supervisorctl {line}", f"exit code {answer['code']}"]
        for name, text in (("stdout", answer["out"]), ("stderr", answer["err"])):
            if text:
                parts += [
                    f"--- {'terminal' if columns else name}",
                    text.replace("\x1b", "␛").replace("\r", "␍").rstrip("\n"),
                ]
        return "\n".join(parts) + "\n"

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)


class Pages:
    """All pages of one night, by file name."""

    def __init__(self):
        self.where = inside.directory()
        self.found = {}
        self.application = inside.Application(lambda: busy_night(self.where))
        self.host = self.application.host
        self.client = Client(self.host)
        self.options = ("-c", str(self.host.config_file))

    def close(self):
        self.client.close()
        self.application.close()

    def keep(self, name, text):
        assert name not in self.found, f"two pages are called {name}"
        self.found[name] = normalised(text, self.where)

    def ask_all(self):
        self.night()
        self.application.serve()
        self.reads()
        for line in VERBS:
            self.keep(f"live/{_slug(line)}.txt", self.client.page(line, options=self.options))
        self.application.stop()
        for line in VERBS:
            self.keep(f"dead/{_slug(line)}.txt", self.client.page(line, options=self.options, later_s=_DEAD_FOR_S))
        self.alone()
        self.application.serve()
        self.calls()
        self.changes()
        self.trouble()
        return self.found

    # --- parts

    def night(self):
        rows = self.host.rows()
        self.keep(JOURNAL, "".join(f"{json.dumps(row)}\n" for row in rows))
        self.keep("facts.txt", "".join(f"{_told(row)}\n" for row in rows))
        self.keep("state.json", state_of(self.found[JOURNAL]))

    def reads(self):
        for name, target in READS:
            self.keep(f"api/{name}.json", self.answer("GET", target))

    def calls(self):
        self.host.configure(_EDITED)
        for number, (method, params) in enumerate(CALLS, 1):
            self.keep(f"rpc/{number:02}-{method}.json", self.with_facts(lambda: self.call(method, params)))  # noqa: B023

    def changes(self):
        for number, (name, target, data) in enumerate(ACTS, 1):
            self.keep(f"acts/{number:02}-{name}.json", self.with_facts(lambda: self.answer("POST", target, body(data))))  # noqa: B023
            if name == "update":
                self.host.configure(CONFIG)
        for number, line in enumerate(CHANGES, 1):
            self.change(f"{number:02}-{_slug(line)}", line)
        newest = max(self.host.backups)
        self.change("90-backup-check", f"backups {newest} --check", of=newest)
        self.change("91-rollback", f"rollback {newest} Pong-s4", of=newest)
        self.change("92-rollback", f"rollback {newest} --no-wait", of=newest)
        self.host.configure(CONFIG.replace("slots = 3", "slots = 0").replace("replay_size", "replay_sise"))
        for number, line in enumerate(("reread", "update", "reload", "config", "avail"), 93):
            self.change(f"{number}-mistaken-{_slug(line)}", line)
        self.host.configure(CONFIG)

    def change(self, name, line, of=""):
        self.keep(f"changes/{name}.txt", self.with_facts(lambda: self.client.page(line, options=self.options)))

    def trouble(self):
        """The journal's disk is full; then the daemon ends in order."""
        self.application.within(self.host.break_journal)
        self.application.within(self.host.ends, self.host.alive()[0].name)
        self.application.run(30.0)
        self.keep("trouble/healthz.json", self.answer("GET", "/healthz"))
        for line in ("status", "stop Breakout", "backup", "level unpin", "history -n 3", "update"):
            self.keep(f"trouble/{_slug(line)}.txt", self.client.page(line, options=self.options))
        self.application.within(self.host.mend_journal)
        self.application.run(60.0)
        self.keep("trouble/shell.txt", self.client.page("@100", options=self.options, stdin=SHELL))
        self.keep("trouble/shutdown.json", self.with_facts(lambda: self.call(*LAST_CALL)))
        self.application.stop()
        self.keep("trouble/status-after-shutdown.txt", self.client.page("status", options=self.options))

    def alone(self):
        for line in ALONE:
            text = self.client.page(line).replace(version("extralife"), "VERSION")  # another one in every release
            self.keep(f"alone/{_slug(line)}.txt", text)
        for verb in self.verbs():
            self.keep(f"alone/help_{verb}.txt", self.client.page(f"help {verb}"))

    def verbs(self):
        """Every verb that `--help` names."""
        _, _, listed = self.client.page("--help").partition("explains one):\n\n")
        return [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]

    def methods(self):
        found = json.loads(self.found[next(name for name in self.found if name.endswith("system.listMethods.json"))])
        return found["answer"]

    # --- one question

    def answer(self, method, target, data=None):
        connection = Connection(self.host.runtime_dir / "supervisor.sock")
        try:
            connection.request(method, target, body=data, headers={"Content-Type": "application/json"})
            response = connection.getresponse()
            text, kind = response.read().decode(), response.getheader("content-type")
            headers = {key: response.getheader(key) for key in ("x-next-offset", "x-note") if response.getheader(key)}
        finally:
            connection.close()
        content = json.loads(text) if kind == "application/json" else text.splitlines()
        asked = f"{method} {target}" + ("" if data is None else f" {data.decode()}")
        return _json({"asked": asked, "status": response.status, "content-type": kind, **headers, "answer": content})

    def call(self, method, params):
        connection = Connection(self.host.runtime_dir / "supervisor.sock")
        try:
            data = xmlrpc.client.dumps(params, method).encode()
            connection.request("POST", "/RPC2", body=data, headers={"Content-Type": "text/xml"})
            text = connection.getresponse().read()
        finally:
            connection.close()
        asked = f"{method}({', '.join(map(repr, params))})"
        try:
            ((answer,), _) = xmlrpc.client.loads(text)
        except xmlrpc.client.Fault as fault:
            return _json({"asked": asked, "fault": fault.faultCode, "text": fault.faultString})
        return _json({"asked": asked, "answer": answer})

    def with_facts(self, ask):
        """The answer, and the facts that came with it."""
        before = len(self.host.core.journal)
        text = ask()
        new = [_told(row) for row in self.host.rows()[before:] if row["kind"] not in {"Checkpointed", "Tallied"}]
        if text.startswith("{"):
            return _json({**json.loads(text), "facts": new})
        return text + "".join(f"--- fact {line}\n" for line in new)


def state_of(journal):
    """The state that the lines of a recorded journal come to."""
    return rounded(_json(inside.folded([json.loads(line) for line in journal.splitlines()])))


def _json(value):
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _told(row):
    about = row["body"].get("program", "")
    return f"{row['seq']:>5} {row['at_s']:>10.1f} {row['boot_id']} {row['kind']} {about}: {row['body']['why']}"


def _slug(line):
    return re.sub(r"[^A-Za-z0-9.@-]+", "_", line) or "nothing"


# --- what was recorded


def recorded():
    """By file name."""
    found = {}
    for path in sorted(RECORDED.rglob("*")):
        if path.is_file():
            data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            found[str(path.relative_to(RECORDED))] = data.decode()
    return found


def record(pages):
    """Write what differs, remove what is no page any more. The names of both."""
    before = recorded()
    changed = [name for name in sorted({*before, *pages}) if before.get(name) != pages.get(name)]
    for name in changed:
        path = RECORDED / name
        if name not in pages:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        data = pages[name].encode()
        path.write_bytes(lzma.compress(data, preset=9) if path.suffix == ".xz" else data)
    return changed


def differences(pages, before):
    """In words: which page, which lines, and what to do about it. Empty: none."""
    out = []
    changed = [name for name in sorted({*before, *pages}) if before.get(name) != pages.get(name)]
    for name in changed:
        old, new = (of.get(name, "").splitlines() for of in (before, pages))
        lines = list(difflib.unified_diff(old, new, f"recorded/{name}", "now", lineterm="", n=1))
        out += [line[:400] for line in lines[:_LINES]]
        if len(lines) > _LINES:
            out.append(f"... {len(lines) - _LINES} more lines")
    if not out:
        return ""
    meant = f"{len(changed)} pages differ from what was recorded. If that is meant: {ANEW}, and read the diff of git."
    return "\n".join([meant, *out])
