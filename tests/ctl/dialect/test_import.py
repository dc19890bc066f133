"""`import`: a supervisord.conf as our TOML. What is printed passes our own check, or it is not printed."""

import getpass
import subprocess
import tomllib

import pytest
from running import ctl

from supervisor import config

BOX = r"""
; a web box
[unix_http_server]
file=/tmp/supervisor.sock   ; (the path to the socket file)
chmod=0770
[inet_http_server]
port=127.0.0.1:9001
[supervisord]
environment=LANG="C.UTF-8",HERE='%(here)s'
umask=022
minfds=4096
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[rpcinterface:multivisor]
supervisor.rpcinterface_factory = multivisor.rpc:make_rpc_interface
[supervisorctl]
serverurl=unix:///tmp/supervisor.sock
[program:web]
command=/bin/sh -c 'echo "100 %%"; exec sleep 1000'   ; say it
process_name=%(program_name)s_%(process_num)02d
numprocs=2
numprocs_start=3
autorestart=true
redirect_stderr=true
stderr_events_enabled=true
stdout_logfile=/var/log/web.log
stdout_logfile_maxbytes=1MB
stdout_logfile_backups=3
[program:worker]
command=sleep 1000
environment=A="1,2",B=%(ENV_TEST_IMPORT)s
directory=%(here)s
stopwaitsecs=30
stdout_logfile_maxbytes=2MB
exitcodes=0,2
priority=7
[program:logs]
command=tail -F /dev/null
stdout_logfile=NONE
stderr_logfile=NONE
startsecs=5
startretries=20
autostart=false
stopasgroup=true
[group:back]
programs=worker,ghost
priority=5
[eventlistener:memmon]
command=memmon -p web=200MB
events=TICK_60, PROCESS_STATE_EXITED
buffer_size=100
[include]
files = conf.d/*.conf box.conf
"""


def imported(directory, text, *, code=0):
    (directory / "box.conf").write_text(text)
    done = ctl("import", str(directory / "box.conf"), TEST_IMPORT="é")
    assert done.returncode == code, done.stdout + done.stderr
    return tomllib.loads(done.stdout) if code == 0 else {}, done.stderr if code == 0 else done.stdout


def test_a_whole_box(tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "x.conf").write_text(
        "[program:extra]\ncommand=sleep 5\nfoo=bar\nautorestart=false\n[include]\nfiles=*.conf\n"
    )
    made, notes = imported(tmp_path, BOX)
    programs = made["program"]
    assert list(programs) == ["web_03", "web_04", "worker", "logs", "extra", "memmon"]
    assert {program["kind"] for program in programs.values()} == {"service"}, "Supervisor runs all of them at once"
    assert programs["web_04"] == {
        "command": ["/bin/sh", "-c", 'echo "100 %"; exec sleep 1000'], "group": "web", "priority": 999, "umask": "022",
        "directory": "/",
        "env": {"LANG": "C.UTF-8", "HERE": str(tmp_path)}, "stop_grace_s": 10.0, "stop_signal_to": "leader",
        "restart": "always", "kind": "service", "start_s": 1.0, "start_retries": 3, "stdin": True, "redirect_stderr": True,
        "stdout_log": "/var/log/web.log", "log_max_bytes": 1 << 20, "log_backups": 3,
    }  # fmt: skip
    worker = programs["worker"]
    assert (worker["group"], worker["directory"], worker["stop_grace_s"], worker["priority"], worker["done_codes"]) == (
        "back", str(tmp_path), 30.0, 7, [0, 2],
    )  # fmt: skip
    assert worker["log_max_bytes"] == 2 << 20, "given for one log, it counts more than the default of the other"
    assert worker["env"] | {"A": "1,2", "B": "é"} == worker["env"]
    logs = programs["logs"]
    assert [logs[key] for key in ("stdout_log", "stderr_log", "log_max_bytes", "log_backups")] == [
        "NONE",
        "NONE",
        50 << 20,
        10,
    ]
    assert (logs["start_s"], logs["start_retries"]) == (5.0, 20)
    assert programs["logs"]["autostart"] is False
    assert "stop_signal_to" not in programs["logs"]
    assert programs["extra"]["restart"] == "never"
    assert "stdin" not in programs["memmon"], "it speaks with `listen`, over pipes of its own"
    listen = programs["memmon"]["command"]
    assert listen[listen.index("listen") :][:-3] == [
        "listen", "TICK_60,PROCESS_STATE_EXITED", "--stdout-of", "", "--stderr-of", "web_03,web_04", "--",
    ]  # fmt: skip
    for said in (
        "[program:extra] foo = bar: has no counterpart",
        "[group:back] priority = 5: a group has no priority here; each program's own sets the order of the starts",
        "[group:back] programs = worker,ghost: there is no [program:ghost]",
        "[unix_http_server]: the control socket lies in the runtime directory; for a group of users: [daemon] socket_group",
        '[http] listen = "127.0.0.1:9001", user = "extralife", password_file = FILE',
        "[rpcinterface:multivisor]: the XML-RPC of Supervisor is built in",
        "[supervisord] minfds = 4096: set it where the daemon is started",
    ):
        assert said in notes


def test_into_a_file_with_the_list_as_comments(tmp_path):
    (tmp_path / "box.conf").write_text("[program:a b]\ncommand=true\nuser=nobody-here\n")
    out = tmp_path / "extralife.toml"
    done = ctl("import", str(tmp_path / "box.conf"), "--out", str(out))
    assert (done.returncode, done.stdout) == (0, f"{out}: 1 program; now: supervisord -c {out} --check\n")
    assert "# not taken over: [program:a b]: a b is called a_b\n" in out.read_text()
    assert "this box has no such user" in done.stderr


def test_a_log_that_is_thrown_away_and_a_script_without_a_directory(tmp_path):
    made, notes = imported(
        tmp_path,
        "[program:a]\ncommand=python train.py --out runs/a\nstdout_logfile=/dev/null\nstderr_logfile=/dev/stderr\n"
        "[program:b]\ncommand=./b.sh\ndirectory=/srv\n[program:c]\ncommand=/usr/bin/python /srv/c.py\n",
    )
    assert made["program"]["a"]["stdout_log"] == "NONE"
    assert [line.partition(": ")[0] for line in notes.splitlines()] == ["[program:a] stderr_logfile = /dev/stderr"]
    assert made["program"]["a"]["directory"] == "/", "where `import` runs"
    assert made["program"]["b"]["directory"] == "/srv"


def test_a_supervisord_that_runs_shows_its_working_directory(tmp_path):
    daemon = subprocess.Popen(["supervisord", "1000"], executable="/bin/sleep", cwd=tmp_path)
    try:
        (tmp_path / "pid").write_text(f"{daemon.pid}\n")
        made, _ = imported(tmp_path, "[supervisord]\npidfile=%(here)s/pid\n[program:a]\ncommand=sleep 1\n")
        assert made["program"]["a"]["directory"] == str(tmp_path)
    finally:
        daemon.kill()
        daemon.wait()


def test_a_file_with_values_of_the_environment_is_for_its_owner_only(tmp_path):
    (tmp_path / "box.conf").write_text("[program:a]\ncommand=sleep 1\nenvironment=A=%(ENV_PASSWORD)s\n")
    out = tmp_path / "extralife.toml"
    done = ctl("import", str(tmp_path / "box.conf"), "--out", str(out), PASSWORD="hunter2")
    assert out.stat().st_mode & 0o777 == 0o600
    note = "[program:a] environment: holds the present value of PASSWORD, so only the owner may read the file (0600)"
    assert done.stderr.strip() == note
    assert out.read_text().count("hunter2") == 1


def test_a_listener_gets_the_output_of_those_programs_that_asked_for_events(tmp_path):
    made, _ = imported(
        tmp_path,
        "[eventlistener:l]\ncommand=listener\nevents=PROCESS_LOG\n[program:quiet]\ncommand=sleep 1\n"
        "[program:loud]\ncommand=sleep 1\nstdout_events_enabled=true\n",
    )
    command = made["program"]["l"]["command"]
    assert command[command.index("PROCESS_LOG") :] == [
        "PROCESS_LOG", "--stdout-of", "loud", "--stderr-of", "", "--", "listener",
    ]  # fmt: skip


TRAINING = """
checkpoint_glob = "runs/pong/*.pt"
checkpoint_step = 'step=(\\d+)'
log_regex = 'step=(?P<step>\\d+) return=(?P<return>\\S+)'
[level]
slots = 6
"""


def test_a_service_that_moved_over_becomes_a_training_without_its_kind(tmp_path):
    (tmp_path / "box.conf").write_text(
        f"[program:pong]\ncommand=python train.py\ndirectory={tmp_path}\nautorestart=true\nstopasgroup=true\n"
        "stopsignal=INT\nstopwaitsecs=60\nstartsecs=10\nstartretries=5\nredirect_stderr=true\n"
    )
    made = ctl("import", str(tmp_path / "box.conf")).stdout.replace('kind = "service"\n', "") + TRAINING
    file = tmp_path / "extralife.toml"
    file.write_text(made)
    settings = config.load(str(file), {}, {"state_dir": f"{tmp_path}/state"}, look=False).settings
    (program,) = settings.programs
    assert (program.service, program.checkpoint_glob, settings.level.slots) == (False, "runs/pong/*.pt", 6)


def test_users(tmp_path):
    made, _ = imported(
        tmp_path, f"[program:a]\ncommand=true\nuser={getpass.getuser()}\n[program:b]\ncommand=true\nuser=nobody\n"
    )
    assert "user" not in made["program"]["a"]
    assert made["program"]["b"]["user"] == "nobody"
    made, _ = imported(tmp_path, "[eventlistener:a]\ncommand=true\nevents=TICK_5\nuser=nobody\n")
    command = made["program"]["a"]["command"]
    assert command[command.index("--") + 1 :][:2] == ["setpriv", "--reuid=nobody"], "`listen` itself reads the journal"
    assert "user" not in made["program"]["a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no section\n", "is no supervisord.conf: File contains no section headers."),
        ("[program:a]\n", "[program:a] command: is missing"),
        ("[program:a]\ncommand='x\n", "[program:a] command: No closing quotation"),
        ("[program:a]\ncommand=%(nothing)s\n", "[program:a] command: %(nothing) is nothing that Supervisor expands here"),
        ("[program:a]\ncommand=%(here)d\n", "[program:a] command: %d format"),
        ("[program:a]\ncommand=x\nnumprocs=2\n", "[program:a] process_name: gives two processes the name a"),
        ("[program:a]\ncommand=x\nnumprocs=9999999\n", "[program:a] numprocs: is 9999999, and 1 to 1000"),
        ("[program:a]\ncommand=x\nautostart=maybe\n", "[program:a] autostart: 'maybe' is neither true nor false"),
        ("[program:a]\ncommand=x\nstopwaitsecs=soon\n", "[program:a] stopwaitsecs: 'soon' is no whole number"),
        ("[program:a]\ncommand=x\nenvironment=A\n", "[program:a] environment: no NAME=VALUE at 'A'"),
        ("[program:a]\ncommand=x\numask=u+x\n", "[program:a] umask: 'u+x' is no octal number"),
        ("[program:a]\ncommand=x\nstdout_logfile_maxbytes=1XB\n", "[program:a] stdout_logfile_maxbytes: '1xb' is no size"),
        ("[eventlistener:a]\ncommand=x\n", "[eventlistener:a] events: is missing"),
        ("\xff\n".encode("latin-1").decode("latin-1") * (5 << 20), "has more than 4 MiB"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_a_broken_file_is_one_sentence(tmp_path, text, said):
    _, told = imported(tmp_path, text, code=1)
    assert said in told
    assert len(told.splitlines()) == 1
