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
OLD_NIGHT = Path(__file__).parent / "old_night.jsonl.xz"  # a journal that is never recorded again: later code has to read it
ANEW = ".venv/bin/python tests/outside/record.py"
_LINES = 40  # of one difference
_SHORT = 200  # characters: shorter answers are recorded again
_KNOWN = 16  # characters of a reason that is known again in a page
_WIDTH = 180  # of the recorded JSON
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
    """extralifectl, in `client_host.py`."""

    def __init__(self, host):
        self._host = host
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("client_host.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        )  # fmt: skip

    def page(self, line, *, later_s=0.0, options=(), stdin=""):
        """One command: `status @80` is `extralifectl status` on a terminal of 80 columns."""
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
        parts = [f"$ extralifectl {line}", f"exit code {answer['code']}"]
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
    """All pages of one night: by the name of their file, the page or verb that they belong to."""

    def __init__(self):
        self.where = inside.directory()
        self.found = {}
        self.answers = {}  # of the API: the target by its JSON
        self.known = {}  # of extralifectl: the first command that gave this
        self.reasons = []
        self.application = inside.Application(lambda: busy_night(self.where))
        self.host = self.application.host
        self.client = Client(self.host)
        self.options = ("-c", str(self.host.config_file))

    def close(self):
        self.client.close()
        self.application.close()

    def keep(self, name, text):
        """One more part of a file. An answer that was recorded before is replaced by the question that it answered."""
        text = _without_defaults(named(normalised(text, self.where), self.reasons))
        asked, _, rest = text.partition("\n")
        if len(rest) > _SHORT and asked.startswith("$ "):
            first = self.known.setdefault(rest, asked[2:])
            text = text if first == asked[2:] else f"{asked}\nas {first}\n"
        self.found[name] = self.found.get(name, "") + text.rstrip("\n") + "\n\n"

    def ask_all(self):
        self.found["facts.txt"] = normalised("".join(f"{_line_of(row)}\n" for row in self.host.rows()), self.where)
        self.found["state_of_the_old_night.json"] = state_of(old_night())
        self.reasons = _reasons(self.host.rows())
        self.application.serve()
        self.reads()
        live = {line: self.client.page(line, options=self.options) for line in VERBS}
        for line, text in live.items():
            self.keep(f"verbs/{_verb(line)}.txt", self.shortened(text))
        self.application.stop()
        for line, text in live.items():
            self.dead(line, text)
        self.keep("dead/status.txt", self.client.page("status", options=self.options, later_s=_DEAD_FOR_S))
        self.alone()
        self.application.serve()
        self.calls()
        self.changes()
        self.trouble()
        return self.found

    # --- parts

    def reads(self):
        for name, target in READS:
            text = self.answer("GET", target)
            self.answers[_data(json.loads(text)["answer"])] = target
            self.keep(f"api/{name.partition('-')[0]}.json", text)

    def shortened(self, text):
        """The page of a verb. JSON and metrics that the API has answered already are replaced by its address."""
        head, mark, rest = text.partition("--- stdout\n")
        out, other, errors = rest.partition("\n--- stderr\n")
        try:
            content = json.loads(out)
        except ValueError:
            content = out.splitlines()
        if target := self.answers.get(_data(content)):
            return f"{head}{mark}as GET {target}\n{other}{errors}"
        return f"{head}{mark}{_json(content)}{other}{errors}" if isinstance(content, dict) else text

    def dead(self, line, live):
        """The lines that the journal of the dead daemon gives otherwise than the daemon did, at the same moment."""
        if "@" in line or "--json" in line:
            return  # the same page in another form
        dead, live = (_unbannered(each).splitlines() for each in (self.client.page(line, options=self.options), live))
        if new := [each[1:] for each in difflib.ndiff(live, dead) if each[0] == "+"]:
            self.keep(f"dead/{_verb(line)}.txt", "\n".join([f"$ extralifectl {line}", *new]))

    def calls(self):
        self.host.configure(_EDITED)
        self.methods = json.loads(self.call("system.listMethods", ()))["answer"]
        for method, params in CALLS:
            self.keep("rpc.txt", self.with_facts(lambda: self.call(method, params)))  # noqa: B023

    def changes(self):
        for name, target, data in ACTS:
            self.keep("acts.txt", self.with_facts(lambda: self.answer("POST", target, body(data))))  # noqa: B023
            if name == "update":
                self.host.configure(CONFIG)
        newest = max(self.host.backups)
        for line in (*CHANGES, f"backups {newest} --check", f"rollback {newest} Pong-s4", f"rollback {newest} --no-wait"):
            self.change(line)
        self.host.configure(CONFIG.replace("slots = 3", "slots = 0").replace("replay_size", "replay_sise"))
        for line in ("reread", "update", "reload", "config", "avail"):
            self.change(line, "mistaken")
        self.host.configure(CONFIG)

    def change(self, line, file="changes"):
        self.keep(f"{file}.txt", self.with_facts(lambda: self.client.page(line, options=self.options)))

    def trouble(self):
        """The journal's disk is full; then the daemon ends in order."""
        self.application.within(self.host.break_journal)
        self.application.within(self.host.ends, self.host.alive()[0].name)
        self.application.run(30.0)
        self.keep("trouble.txt", self.answer("GET", "/healthz"))
        for line in ("status", "stop Breakout", "backup", "level unpin", "history -n 3", "update"):
            self.keep("trouble.txt", self.client.page(line, options=self.options))
        self.application.within(self.host.mend_journal)
        self.application.run(60.0)
        self.keep("shell.txt", self.client.page("@100", options=self.options, stdin=SHELL))
        self.keep("trouble.txt", self.with_facts(lambda: self.call(*LAST_CALL)))
        self.application.stop()
        self.keep("trouble.txt", self.client.page("status", options=self.options))

    def alone(self):
        for line in ALONE:
            text = self.client.page(line).replace(version("extralife"), "VERSION")  # another one in every release
            self.keep(f"alone/{_verb(line)}.txt", text)

    def verbs(self):
        """Every verb that `--help` names."""
        _, _, listed = self.client.page("--help").partition("explains one):\n\n")
        return [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]

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
        new = [_line_of(row) for row in self.host.rows(before) if row["kind"] not in {"Checkpointed", "Tallied"}]
        return text + "".join(f"--- fact {line}\n" for line in new)


def named(text, reasons):
    """A fact's reason stands in `facts.txt` alone: elsewhere it is `<Exited Pong-s4>`. So a changed word changes one page."""
    for why, name in reasons:
        text = text.replace(why, name).replace(json.dumps(why, ensure_ascii=False)[1:-1], name)
    return re.sub(r"[^\n\">]{12,}…", lambda cut: _cut_reason(cut[0], reasons), text)


def _cut_reason(text, reasons):
    """A line of a narrow terminal that ends within a reason."""
    for why, name in reasons:
        for begin in range(12, len(text)):
            end = text[-begin - 1 : -1]
            if end and why.startswith(end) and text[-begin - 2 : -begin - 1] in {" ", ""}:
                return f"{text[: -begin - 1]}{name}…"
    return text


def _reasons(rows):
    """The name of each reason that is long enough to be known again: the kind of its fact, and the program if it is one."""
    found = {}
    for row in rows:
        found.setdefault(row["body"]["why"], (row["kind"], set()))[1].add(row["body"].get("program", ""))
    names = {why: " ".join([kind, *programs] if len(programs) == 1 else [kind]) for why, (kind, programs) in found.items()}
    known = sorted((why for why in names if len(why) >= _KNOWN), key=len, reverse=True)  # the longest one first
    return [(why, f"<{names[why].rstrip()}>") for why in known]


_BANNERS = re.compile(r"(?m)^(?:daemon is not running \(.*|the log directory /.* was replaced; .*)\n")


def _unbannered(text):
    return re.sub(r"\n--- (?:stdout|stderr|terminal)\n(?=\n|\Z)", "\n", _BANNERS.sub("", text) + "\n")


def _without_defaults(text):
    """`config` shows some hundred settings; docs/config.md has their defaults."""
    return re.sub(r'(?m)^(?: *\{"key".*"origin": "default"\},?|[\w.-]+ += .*  \(default\))\n', "", text)


def _data(content):
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key != "version"}
    return json.dumps(content, sort_keys=True)


def state_of(journal):
    """The state that the lines of a recorded journal come to, without fields that are empty."""
    return rounded(_json(_filled(inside.folded([json.loads(line) for line in journal.splitlines()]))))


def _filled(value):
    """A new field of a record, empty for an old night, is no difference."""
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items() if each not in (None, "", 0, False, [], {})}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _json(value):
    return f"{_lines(value)}\n"


def _lines(value, indent=0):
    """JSON in lines: what fits into one line stands in one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= _WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{pad}{json.dumps(key, ensure_ascii=False)}: {_lines(each, indent + 1)}" for key, each in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{' ' * indent}}}"
    return "[\n" + ",\n".join(f"{pad}{_lines(each, indent + 1)}" for each in value) + f"\n{' ' * indent}]"


def _line_of(row):
    about = row["body"].get("program", "")
    return f"{row['seq']:>5} {row['at_s']:>10.1f} {row['boot_id']} {row['kind']} {about}: {row['body']['why']}"


def _verb(line):
    word = next((word for word in line.split() if word[0] not in "@-"), line.split()[0] if line else "nothing")
    return re.sub(r"[^A-Za-z0-9-]+", "_", word)


# --- what was recorded


def recorded():
    """By file name."""
    return {str(path.relative_to(RECORDED)): path.read_text() for path in sorted(RECORDED.rglob("*")) if path.is_file()}


def old_night():
    """The rows of a journal that a daemon wrote once, as lines."""
    return lzma.decompress(OLD_NIGHT.read_bytes()).decode()


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
        path.write_text(pages[name])
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
