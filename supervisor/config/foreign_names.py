"""Names of settings in Supervisor, systemd, pm2, circus and Docker Compose, and what does the same here.

Worked example: `autorestart = true` in a program is answered with `set restart = "always", "failed" or "never"`. The nearest
of our own names would be `autostart`, which does something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from supervisor import discovery
from supervisor.keys import declared
from supervisor.model.settings import SECTIONS
from workers.options import nearest

_INSTEAD: Final = {
    "autorestart restartpolicy respawn autoheal": 'set restart = "always", "failed" or "never"',
    "environment environ env envs envvars environmentvariables passenvironment": 'set env = { NAME = "value" } of a program',
    "envfile environmentfile dotenv": "set env, or let a shell read the file: shell = true, command = '. ./FILE; exec ...'",
    "cwd chdir workingdir workingdirectory workdir": "set directory",
    "stopasgroup killmode": "set stop_signal_to; by default every process of its tree is asked",
    "killasgroup treekill sendsigkill": "every process of its tree is killed in any case; remove it",
    "startsecs minuptime warmupdelay": "set start_s",
    "startretries maxrestarts maxretries retries retry startlimitburst": "set start_retries; [restart] limits deaths",
    "restartdelay restartsec expbackoffrestartdelay retryin backoff": "set base_delay_s and max_delay_s in [restart]",
    "exitcodes successexitcodes successexitstatus stopexitcodes": "set done_codes",
    "stopwaitsecs timeoutstopsec killtimeout gracefultimeout graceperiod stopgraceperiod stoptimeout": "set stop_grace_s",
    "timeoutstartsec listentimeout": "set start_timeout_s",
    "watchdogsec watchdogtimeout hangtimeout": "set stall_timeout_s",
    "checkpoint checkpointdir checkpointpath resume resumefrom autoresume": "set checkpoint_glob, and {resume} in command",
    "savedir savepath": "set checkpoint_glob of a program to what it saves there",
    "totaltimesteps": "set target_steps",
    "stopsignal killsignal": "set stop_signal",
    "stdoutlogfile outfile stdout stdoutfile standardoutput logfile logpath log output": "set stdout_log",
    "stderrlogfile errorfile errfile stderr stderrfile standarderror": "set stderr_log",
    "mergelogs combinelogs": "set redirect_stderr",
    "stdoutlogfilemaxbytes stderrlogfilemaxbytes maxsize": "set log_max_bytes",
    "stdoutlogfilebackups stderrlogfilebackups retain": "set log_backups",
    "numprocs numprocesses instances replicas scale": "set seeds, or write one section each",
    "execstart exec run execpath script cmd entrypoint args interpreter": "set command",
    "virtualenv venv condaenv python": "begin command with the python of that environment",
    "uid gid runas username": "set user",
    "nice cpushares": "set cpu_weight",
    "maxmemoryrestart memorymax memlimit memorylimit memory": "set memory_mb of the level",
    "dependson depends after requires wants bindsto": "no program waits for another; priority sets the order of the starts",
    "cron cronrestart oncalendar schedule": "no calendar starts programs; let cron call `extralifectl restart NAME`",
    "gpus numgpus gpuids cudavisibledevices": 'set gpu to one index, or env = { CUDA_VISIBLE_DEVICES = "0,1" }',
    "healthcheck livenessprobe": "set health, of a service",
    "enabled disabled": "set autostart",
    "processname": "the name of the section, [program.NAME], is the program's name",
    "watch ignorewatch": "extralife does not restart a program when a file changes; remove it",
    "include includes": "write one file; `extralifectl run` keeps its programs in files of their own",
    "supervisord": "its counterpart is [daemon]; `extralifectl import FILE` translates a supervisord.conf",
    "unixhttpserver": "the control socket lies in [daemon] runtime_dir",
    "inethttpserver": "set listen in [http]",
    "compile": "remove it: cuda_graphs, which is on, does more for a GPU",
    "programs apps app jobs job tasks task workers worker": "write one section a program, [program.NAME]",
    "services service": 'write [program.NAME] with kind = "service"',
    "group groups": 'set group = "NAME" in each of its programs',
    "defaults default programdefaults": "[training] has defaults, of built-in games only; a command repeats its keys",
    "timeout": "set stall_timeout_s (no progress), start_timeout_s (no first step) or stop_grace_s (at a stop)",
    "heartbeat": 'set progress = "beat" for a script that reports as in docs/contract.md',
    "regex": "set log_regex, the pattern of the steps in its output",
    "volumes volume mounts": "extralife makes no container; mount it in command, with `docker run -v`",
    "loglevel": "log_level is a key of [daemon], for extralife's own log; a script's own is set in command or env",
    "eventlistener": "`extralifectl import FILE` translates it into a program",
}  # fmt: skip
_PROGRAM: Final = "set notice.command to the provider's program in deploy/notices/ (docs/offsite.md)"
GONE: Final = {  # settings of an earlier extralife, and what to do
    **dict.fromkeys(("notice.provider", "notice.endpoint"), _PROGRAM),
    **dict(discovery.entries("settings", "GONE")),
    "training.compile": _INSTEAD["compile"],
}
_BY_NAME: Final = {name: instead for names, instead in _INSTEAD.items() for name in names.split()}


def hint(key: str, known: Iterable[str], otherwise: str = "docs/config.md lists them all") -> str:
    """The end of a sentence about an unknown key: what to set instead, or our nearest name, or `otherwise`."""
    plain = re.sub("[^a-z]", "", key.lower().removesuffix("_s"))
    sections = [name for name, section in SECTIONS.items() if key in declared(section)]
    instead = _BY_NAME.get(plain) or (f"{key} is a key of [{sections[0]}]" if len(sections) == 1 else "")
    return f"; {instead}" if instead else nearest(key, known) or f"; {otherwise}"
