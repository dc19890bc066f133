"""What `help` prints."""

from __future__ import annotations

USAGE = """supervisorctl [options] [action [arguments]]

Talks to extralife's daemon over its control socket. Without an action: an interactive shell.

  -c, --configuration FILE  the daemon's configuration, which says where the socket is
  -s, --serverurl URL       the socket itself: unix:///path/to/supervisor.sock
      --state-dir DIR       the daemon's state directory
  -i, --interactive         the shell, also when an action is given
  -r, --history-file FILE   where the shell keeps its history
  -h, --help                this text
  -v, --version             the version of this client

Actions (`help ACTION` tells more): {actions}"""

ACTIONS = {
    "accounts": "accounts [NAME ..] [--since 1h|2d|TIME|boot] [--json]\n"
    "  What every second was spent on, by program and for all slots; it adds up to what was paid.",
    "alerts": "alerts [test] [--json]\n"
    "  Who is told, what waits for whom, what was delivered; `test` sends one to everybody now, and says how that went.",
    "avail": "avail\n  Every configured program: in use or not, auto or manual start, priority.",
    "backup": "backup [NAME ..|all] [--label TEXT] [--no-wait]\n"
    "  A verified copy of the newest whole checkpoint of programs. Ctrl-C ends the watching, not the backup.",
    "backups": "backups [BACKUP ..] [--check] [--json]\n"
    "  Every backup: when, why, of what; --check reads every byte of them now.",
    "clear": "clear NAME ..|all\n  Empty the logs of programs; rotated copies stay.",
    "config": "config --explain [--json]\n  Every setting with its value and where it comes from.",
    "doctor": "doctor [--json]\n"
    "  What of host, installation and settings stands in the way, and what to do. Exit code 1 when something is bad.",
    "cost": "cost [--since 1h|2d|TIME|boot] [--json]\n"
    "  What the box has cost and what for, and days and dollars to finish at each level, by measured rates.",
    "exit": "exit, quit, Ctrl-D\n  Leave the shell.",
    "explain": "explain NAME [-n N] [--json]\n"
    "  What is wrong with a program, or was: its last N incidents (3) with their evidence.",
    "help": "help [ACTION]",
    "history": "history [NAME] [-n N] [--all] [--json]\n"
    "  What happened and why: the newest N facts (50); --all has the routine ones too.",
    "journal": "journal --jsonl [--after N]\n  Every fact, one JSON object a line, oldest first.",
    "level": "level [show|why [-n N]|pin LEVEL [--for 6h]|unpin] [--json]\n"
    "  The ladder and what the box has shown on it; why it is where it is; your word against the rule's.",
    "maintail": "maintail [-f] [-N]\n  The daemon's own log: its last N bytes (1600), and with -f what follows.",
    "pid": "pid [NAME ..|all]\n  The daemon's process id, or programs'; 0 for one that is down.",
    "reboots": "reboots [-f] [--json]\n  Every restart of the host: when, why, how long it was down, what ran.",
    "reload": "reload\n  The daemon replaces itself with its newest code; workers stay as they are.",
    "reread": "reread\n  Read the configuration and say what `update` would change. Changes nothing.",
    "restart": "restart NAME ..|all\n  Each saves, leaves and is started again.",
    "results": "results [--csv FILE] [--json]\n"
    "  The newest test of every run, over seeds and games; --csv e1_results.csv writes it as a table.",
    "rollback": "rollback BACKUP [NAME ..|all] [--no-wait]\n"
    "  Programs save, leave and go on from a backup, once that is verified; what was there is kept as a backup.",
    "shutdown": "shutdown\n  Every worker saves and leaves, then the daemon ends.",
    "signal": "signal SIGNAL NAME ..|all\n  Send a signal to the workers: HUP, SIGHUP or 1.",
    "simulate": "simulate [--host ARCHETYPE|--journal FILE] [--days N] [--seed N] [--start LEVEL] [--out FILE.svg|png]"
    " [--why] [--json]\n"
    "  What the load policy makes of a simulated box, or of this one as its journal tells of it, beside every fixed level\n"
    "  and an oracle; needs no daemon, and only reads the journal.",
    "start": "start NAME ..|all\n  Answers `started` once the worker's process lives; whether it trains is in `status`.",
    "status": "status [NAME ..] [--json] [--wide] [--watch [SECONDS]]\n"
    "  How everything is. Exit code 0, 3 when a program is STOPPED, DONE, FATAL or in\n"
    "  slow retry, 4 when the daemon is dead.",
    "stop": "stop NAME ..|all\n"
    "  Each saves and leaves, and stays down over restarts of daemon and host until it is started.",
    "tail": "tail [-f] [-N] NAME [stdout|stderr]\n  The last N bytes (1600) of a program's log, and with -f what follows.",
    "update": "update [--dry-run] [NAME ..]\n  Read the configuration and apply what changed; nothing else is touched.",
    "wait-gpu": "wait-gpu --min-free-mb N [--gpu I] [--timeout S] [--poll S] [--fallback-batch B] [--if-no-gpu run] -- CMD\n"
    "  Start a command once a GPU has the memory for it; needs no daemon. Exit code 75: it never had, 69: no GPU is known.",
    "version": "version\n  The daemon's version.",
}


def usage() -> str:
    return USAGE.format(actions=", ".join(sorted(ACTIONS)))


def about(action: str) -> str | None:
    text = ACTIONS.get("exit" if action == "quit" else action)
    return None if text is None else f"usage: {text}"
