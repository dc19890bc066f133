"""Every question that is put to the daemon of the busy night, in order. A new route, method or verb needs a row here."""

from __future__ import annotations

import json

# Of each route: requests as (name of the page, target). Refusals are pages too.
READS = (
    ("status", "/api/v1/status"), ("healthz", "/healthz"), ("metrics", "/metrics"),
    ("program", "/api/v1/programs/Pong-s4"), ("program-foreign", "/api/v1/programs/script"),
    ("program-unknown", "/api/v1/programs/Nobody"), ("facts", "/api/v1/facts?limit=-9"),
    ("facts-of-a-program", "/api/v1/facts?program=Seaquest&kinds=Exited,RolledBack,Sickened,Finished"),
    ("facts-of-a-reboot", "/api/v1/facts?kinds=HostRebooted,BoxIdentified"),
    ("facts-after", "/api/v1/facts?after=500&limit=3"), ("facts-wrong", "/api/v1/facts?after=x"),
    ("log", "/api/v1/logs/Pong-s4/stdout?tail=40"), ("log-offset", "/api/v1/logs/Pong-s4/stderr?offset=3&limit=5"),
    ("log-unknown", "/api/v1/logs/Nobody/stdout"), ("log-channel", "/api/v1/logs/Pong-s4/stdin"),
    ("mainlog", "/api/v1/mainlog?tail=41"), ("accounts", "/api/v1/accounts"),
    ("accounts-wrong", "/api/v1/accounts?since=yesterday"), ("backups", "/api/v1/backups"),
    ("backups-check-unknown", "/api/v1/backups?check=nothing"), ("offsite", "/api/v1/offsite"),
    ("cost", "/api/v1/cost"), ("cost-time", "/api/v1/cost?since=@1800010000"), ("report", "/api/v1/report?since=3600s"),
    ("incidents", "/api/v1/incidents?since=7200s&limit=2"), ("incidents-one", "/api/v1/incidents?seq=314&chars=200"),
    ("incidents-wrong", "/api/v1/incidents?since=60s&until=3600s"),
    ("timeline", "/api/v1/timeline?since=20000s&until=3600s"), ("days", "/api/v1/days"),
    ("days-window", "/api/v1/days?since=7200s&until=3600s"), ("results", "/api/v1/results"),
    ("curves", "/api/v1/curves?series=mean_return,loss&since=3600s"), ("curves-unknown", "/api/v1/curves?series=los"),
    ("recorded", "/api/v1/recorded?sheet=host&period_s=60"), ("recorded-unknown", "/api/v1/recorded?period_s=30"),
    ("level", "/api/v1/level"), ("nodes", "/api/v1/nodes"), ("alerts", "/api/v1/alerts"), ("config", "/api/v1/config"),
    ("no-page", "/api/v1/nothing"), ("no-method", "/api/v1/ask"),
)  # fmt: skip
# Three routes stream for ever; tests/api/test_stream.py and test_xmlrpc.py test them.
FILES = {"/", "/assets/{stamp}/{path:path}"}  # the dashboard: tests/api/dashboard/test_assets.py
STREAMS = {"/api/v1/stream", "/logtail/{spec:path}", "/mainlogtail"}

# (name, target, body)
ACTS = (
    ("ask-stop", "/api/v1/ask", {"verb": "stop", "names": ["Breakout", "Nobody", "Enduro"]}),
    ("ask-start", "/api/v1/ask", {"verb": "start", "names": ["Breakout", "Pong-s6", "Pong-s4"]}),
    ("ask-restart", "/api/v1/ask", {"verb": "restart", "names": ["Pong-s4"]}),
    ("ask-signal", "/api/v1/ask", {"verb": "signal", "names": ["Pong-s4"], "signal": "HUP"}),
    ("ask-signal-wrong", "/api/v1/ask", {"verb": "signal", "names": ["Pong-s4"], "signal": "NO"}),
    ("ask-clear", "/api/v1/ask", {"verb": "clear", "names": ["Freeway"]}),
    ("ask-wrong-verb", "/api/v1/ask", {"verb": "dance"}),
    ("ask-wrong-key", "/api/v1/ask", {"verb": "stop", "who": "all"}),
    ("ask-wrong-names", "/api/v1/ask", {"verb": "stop", "names": "Pong"}),
    ("backup", "/api/v1/backup", {"names": ["Pong-s4"], "label": "by hand"}),
    ("backup-unknown", "/api/v1/backup", {"names": ["Nobody"]}),
    ("backup-label", "/api/v1/backup", {"label": "\u0007"}),
    ("rollback-unnamed", "/api/v1/rollback", {}),
    ("rollback-unknown", "/api/v1/rollback", {"backup": "nothing"}),
    ("offsite-now", "/api/v1/offsite", {"do": "now"}),
    ("offsite-wrong", "/api/v1/offsite", {"do": "dance"}),
    ("when-done", "/api/v1/when-done", {"do": "delay", "for_s": 3600}),
    ("pin", "/api/v1/level", {"pin": "light", "for_s": 3600}),
    ("pin-unknown", "/api/v1/level", {"pin": "feather"}),
    ("pin-wrong", "/api/v1/level", {"pin": "light", "unpin": True}),
    ("unpin", "/api/v1/level", {"unpin": True}),
    ("unpin-again", "/api/v1/level", {"unpin": True}),
    ("reread", "/api/v1/reread", {}),
    ("update-dry", "/api/v1/update", {"dry_run": True}),
    ("update-one", "/api/v1/update", {"names": ["Gopher"]}),
    ("update", "/api/v1/update", {}),
    ("remove-nobody", "/api/v1/remove", {"name": "Nobody"}),
    ("stdin-none", "/api/v1/stdin", {"name": "Pong-s4", "text": "x"}),
    ("stdin-unknown", "/api/v1/stdin", {"name": "Nobody", "text": "x"}),
    ("stdin-wrong", "/api/v1/stdin", {"name": "Pong-s4", "text": 4}),
    ("alerts-test", "/api/v1/alerts/test", {}),
    ("not-json", "/api/v1/ask", "{"),
)

# (name, method, parameters)
CALLS = (
    ("supervisor.getAPIVersion", ()),
    ("supervisor.getVersion", ()),
    ("supervisor.getSupervisorVersion", ()),
    ("supervisor.getIdentification", ()),
    ("supervisor.getState", ()),
    ("supervisor.getPID", ()),
    ("supervisor.getProcessInfo", ("Pong-s4",)),
    ("supervisor.getProcessInfo", ("Pong-s6:Pong-s6",)),
    ("supervisor.getProcessInfo", ("Nobody",)),
    ("supervisor.getProcessInfo", ()),
    ("supervisor.getProcessInfo", (4,)),
    ("supervisor.getAllProcessInfo", ()),
    ("supervisor.getAllConfigInfo", ()),
    ("supervisor.readLog", (0, 30)),
    ("supervisor.readMainLog", (-20, 0)),
    ("supervisor.readProcessLog", ("Pong-s4", 0, 20)),
    ("supervisor.readProcessStdoutLog", ("Pong-s4", -20, 0)),
    ("supervisor.readProcessStdoutLog", ("Pong-s4", -1, 5)),
    ("supervisor.readProcessStderrLog", ("Pong-s4", 0, 0)),
    ("supervisor.readProcessStderrLog", ("Nobody", 0, 0)),
    ("supervisor.tailProcessLog", ("Pong-s4", 0, 20)),
    ("supervisor.tailProcessStdoutLog", ("Pong-s4", 0, 20)),
    ("supervisor.tailProcessStderrLog", ("Pong-s4", 0, 20)),
    ("supervisor.sendProcessStdin", ("Pong-s4", "x")),
    ("supervisor.sendRemoteCommEvent", ("type", "data")),
    ("supervisor.signalProcess", ("Pong-s4", "USR2")),
    ("supervisor.signalProcess", ("Enduro", "USR2")),
    ("supervisor.signalProcess", ("Pong-s4", "NO")),
    ("supervisor.signalProcessGroup", ("Pong-s4", "USR2")),
    ("supervisor.signalAllProcesses", ("USR2",)),
    ("supervisor.stopProcess", ("Pong-s4",)),
    ("supervisor.stopProcess", ("Pong-s4",)),
    ("supervisor.stopProcess", ("Pong-s4:*",)),
    ("supervisor.startProcess", ("Pong-s4",)),
    ("supervisor.startProcess", ("Pong-s4",)),
    ("supervisor.startProcess", ("Nobody",)),
    ("supervisor.stopProcessGroup", ("Qbert",)),
    ("supervisor.startProcessGroup", ("Qbert",)),
    ("supervisor.clearProcessLog", ("Freeway",)),
    ("supervisor.clearProcessLogs", ("Freeway",)),
    ("supervisor.clearAllProcessLogs", ()),
    ("supervisor.clearLog", ()),
    ("supervisor.reloadConfig", ()),
    ("supervisor.addProcessGroup", ("Pong-s4",)),
    ("supervisor.addProcessGroup", ("Nobody",)),
    ("supervisor.removeProcessGroup", ("Pong-s4",)),
    ("supervisor.removeProcessGroup", ("Enduro",)),
    ("supervisor.addProcessGroup", ("Enduro",)),
    ("supervisor.stopAllProcesses", ()),
    ("supervisor.startAllProcesses", ()),
    ("supervisor.restart", ()),
    ("extralife.getLevel", ()),
    ("extralife.pinLevel", ("medium", 2)),
    ("extralife.pinLevel", ("feather",)),
    ("extralife.unpinLevel", ()),
    ("extralife.whenDone", ("cancel",)),
    ("system.listMethods", ()),
    ("system.methodHelp", ("supervisor.startProcess",)),
    ("system.methodHelp", ("supervisor.nothing",)),
    ("system.methodSignature", ("supervisor.startProcess",)),
    ("system.multicall", ([{"methodName": "supervisor.getState", "params": []}, {"methodName": "supervisor.nothing"}],)),
    ("system.nothing", ()),
)  # fmt: skip
LAST_CALL = ("supervisor.shutdown", ())

# What is asked of the living daemon and of the journal of the dead one. A number of columns means: on a terminal.
VERBS = (
    "status", "status @120", "status @80", "status --wide", "status --json", "status Pong-s4 Nobody", "status Qbert",
    "status --frobnicate",
    "history", "history @100", "history -n 5", "history Pong-s4 -n 20", "history --all -n 10", "history -n 3 --json",
    "history Nobody", "history -n x",
    "explain Pong-s4", "explain Seaquest -n 5", "explain Pong-s6 --json", "explain Enduro", "explain Nobody", "explain",
    "reboots", "reboots --json", "reboots x",
    "journal --after 995", "journal x",
    "accounts", "accounts @120", "accounts Pong-s4", "accounts --since boot", "accounts --since 1h --json",
    "accounts --since x", "accounts Nobody",
    "cost", "cost --since 2h", "cost --json", "cost x",
    "level", "level @120", "level --json", "level why", "level why -n 3", "level dance",
    "nodes", "nodes --json", "nodes x",
    "metrics", "metrics x", "top", "plot", "plot Nobody", "plot Pong -o pong.gif",
    "export", "export gpus --period 60 --since 12h", "export disks",
    "report", "report --since all", "report --since boot --json", "report Pong",
    "results", "results @120", "results --json",
    "alerts", "alerts --json", "alerts dance",
    "backups", "backups --json", "backups nothing", "backups --check",
    "offsite", "offsite --json", "offsite dance", "offsite restore",
    "tail Pong-s4", "tail -50 Pong-s4 stderr", "tail Nobody", "tail", "maintail", "maintail -41", "maintail x",
    "status Pong-s4 @150", "pid --json", "pid all --json", "avail --json", "version --json", "reread --json", "tail --help", "histroy",
    "add", "add Pong-s4 Nobody", "pid", "pid Pong-s4 Enduro", "pid Nobody", "pid all", "version", "version x", "avail", "reread", "reread x",
    "config", "config --json", "config x", "config --help",
    "help", "nothing",
)  # fmt: skip
# Asked of the living daemon alone, in this order; most of them change something.
CHANGES = (
    "stop Breakout Nobody", "stop", "start Breakout @100", "start Breakout", "start", "restart Pong-s4", "restart",
    "signal HUP Pong-s4", "signal HUP", "signal NO Pong-s4", "clear Freeway", "clear", "clear Nobody",
    "backup Pong-s4 --label by-hand", "backup @100", "backup --no-wait", "backup Nobody", "backups --check",
    "rollback", "rollback nothing", "rollback nothing @100", "offsite now", "offsite now --json",
    "when-done", "when-done --json", "when-done cancel", "when-done delay", "when-done delay 2h",
    "level pin light --for 6h", "level pin feather", "level pin", "level pin light --for x", "level", "level unpin", "level unpin",
    "alerts test", "alerts test --json",
    "update --dry-run", "update Nobody", "update", "update", "shutdown x", "reload x",
    "reload", "status", "stop Nobody --json", "remove Nobody", "fg", "fg Nobody", "fg Pong-s4", "fg a b",
)  # fmt: skip
# With the same answers, daemon or not.
ALONE = (
    "--help", "--version", "--frobnicate", "-s", "-s ftp://localhost status", "import /nonexistent", "listen TICK_6 -- true", "open", "completion bash", "completion zsh", "completion fish", "completion",
    "-c /nonexistent.toml status",
    "wait-gpu", "wait-gpu --min-free-mb x -- true", "wait-gpu --min-free-mb 1",
    "doctor x", "run", "run sleep 9", "remove",
)  # fmt: skip
SHELL = "help\nhelp status\npid Pong-s4\nnothing\n\nversion\nshutdown\nn\nexit\n"
# Verbs of `help` with no page of their own here: what they print depends on the machine (doctor, with a check of its
# refusals above), or on a repository, or they are words of the shell (a page of the shell has them).
ELSEWHERE = {"dashboard", "exit", "next-box"}


def body(data: object) -> bytes:
    return data.encode() if isinstance(data, str) else json.dumps(data).encode()
