"""The keys of a command that say how its process runs: user, umask, standard input, logs, when it counts as started."""

from __future__ import annotations

import os

import pytest
from config_kit import Place

PLAIN = '[program.x]\ncommand = "sleep 1"\n'


def test_without_any_nothing_changes_not_even_the_digest(place: Place) -> None:
    spec = place.program("x", PLAIN)
    assert (spec.user, spec.umask, spec.stdin, spec.redirect_stderr, spec.stdout_log, spec.stderr_log) == (
        "", "", False, False, "AUTO", "AUTO",
    )  # fmt: skip
    assert (spec.start_s, spec.start_retries, spec.log_max_bytes, spec.log_backups) == (None, None, None, None)
    live = place.program("x", f"{PLAIN}start_s = 3\nstart_retries = 5\nlog_max_bytes = 0\nlog_backups = 1\n")
    assert live.digest == spec.digest, "these are taken over without a restart"
    assert (live.start_s, live.start_retries, live.log_max_bytes, live.log_backups) == (3.0, 5, 0, 1)


@pytest.mark.parametrize(
    "line",
    [
        'umask = "027"',
        "stdin = true",
        "redirect_stderr = true",
        'stdout_log = "none"',
        'stderr_log = "~/x.log"',
        'user = "0"',
    ],
)
def test_what_a_running_process_cannot_take_over_is_in_the_digest(place: Place, line: str) -> None:
    assert place.program("x", PLAIN + line).digest != place.program("x", PLAIN).digest


def test_logs(place: Place) -> None:
    settings = place.settings(f'{PLAIN}stdout_log = "~/x.log"\nredirect_stderr = true\nlog_max_bytes = 0\n')
    spec = settings.programs[0]
    found = [settings.paths.log_of(spec, channel) for channel in ("stdout", "stderr")]
    assert found == [os.path.expanduser("~/x.log"), None]
    assert (settings.log_max_bytes(spec), settings.log_backups(spec)) == (0, settings.daemon.log_backups)
    settings = place.settings(f'{PLAIN}stdout_log = "None"\n')
    assert settings.paths.log_of(settings.programs[0], "stdout") is None
    assert settings.logs("x") == (settings.paths.log("x", "stderr"),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('umask = "9"', "program.x.umask must be octal, a string such as \"022\", not '9'"),
        ("umask = 18", 'program.x.umask must be octal, a string such as "022", not 18'),
        ('stdout_log = "x.log"', "program.x.stdout_log must be AUTO, NONE or the absolute path of a file, not 'x.log'"),
        ('stderr_log = "/dev/stderr"', "program.x.stderr_log must be AUTO, NONE or the absolute path of a file, not '/dev/stderr'"),
        ('redirect_stderr = true\nstderr_log = "NONE"', "program.x.stderr_log has no effect with redirect_stderr = true; remove one of the two"),
        ('stdout_log = "/srv/"', "program.x.stdout_log must be AUTO, NONE or the absolute path of a file, not '/srv/'"),
        ('stdout_log = "/proc/1/x"', "program.x.stdout_log must be AUTO, NONE or the absolute path of a file, not '/proc/1/x'"),
        ("log_max_bytes = 4095", "program.x.log_max_bytes must be 0 (never rotated) or at least 4096, not 4095"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(place: Place, line: str, said: str) -> None:
    last = 3 + line.count("\n")
    assert place.errors(PLAIN + line) == [f"FILE, line {last}: {said}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_what_another_user_cannot_do_is_refused(place: Place) -> None:
    closed = "because the daemon's directories are closed to user 'nobody'"
    assert place.errors(f'{PLAIN}user = "nobody"\nprogress = "beat"\n') == [
        f'FILE, line 4: program.x.progress cannot be "beat", {closed}; auto, log, files and figures work'
    ]
    assert place.errors('[program.x]\ncommand = ["a", "--out={run_dir}"]\nuser = "nobody"\n') == [
        f"FILE, line 2: program.x.command cannot use {{run_dir}}, {closed}; name a directory of its own"
    ]
    assert place.errors(f'{PLAIN}user = "nobody"\nenv = {{ A = "{{run_dir}}" }}\ndirectory = "{{run_dir}}"\n') == [
        f"FILE, line {line}: program.x.{key} cannot use {{run_dir}}, {closed}; name a directory of its own"
        for key, line in (("env", 4), ("directory", 5))
    ]
    own = f'{PLAIN}user = "nobody"\ndirectory = "{place.directory}/state/programs/x2"\nenv = {{ A = "{{name}}" }}\n'
    assert place.errors(own) == []
    assert place.errors(f'{PLAIN}user = "nobody"\nprogress = "notify"\n') == [
        f'FILE, line 4: program.x.progress cannot be "notify", {closed}; auto, log, files and figures work'
    ]
    assert place.errors(f'{PLAIN}user = "nobody"\nprogress = "log"\n') == []
    for key in ("checkpoint_glob", "progress_glob", "csv_glob"):
        assert place.errors(f'{PLAIN}user = "nobody"\n{key} = "a/*"\n') == [
            f"FILE, line 4: program.x.{key} needs `directory`, {closed}; name a directory of its own"
        ]
    assert place.errors(f'{PLAIN}user = "nobody"\ndirectory = "/srv"\ncheckpoint_glob = "a/*"\ncsv_glob = "b/*"\n') == []
    assert place.load(f'{PLAIN}user = "root"\nprogress = "beat"\n').settings.programs[0].user == "root"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_a_state_directory_that_another_user_could_replace_is_refused_with_a_program_of_another_user(place: Place) -> None:
    state = place.directory / "state"
    state.mkdir(mode=0o700)
    state.chmod(0o777)
    assert place.errors(PLAIN) == [], "rented boxes have no second user"
    (error,) = place.errors(f'{PLAIN}user = "nobody"\n')
    assert error.endswith(
        f"daemon.state_dir: every user may write to {state} (mode 0777), and x has another user, who must not; chmod go-w"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_a_log_that_its_user_may_not_write_is_a_warning(place: Place) -> None:
    logs = place.directory / "logs"
    logs.mkdir()
    log = f'{PLAIN}user = "nobody"\nstdout_log = "{logs}/x.log"\n'
    assert place.load(log).warnings == (), "root opens it: only root decides where it leads"
    os.chown(logs, 12345, -1)
    (warning,) = place.load(log).warnings
    assert warning.partition(", line 4: ")[2] == (
        f"program.x.stdout_log: {logs} belongs to user 12345, who can change its files, so user 'nobody' opens "
        "this log, but may not write there; name another directory"
    )


def test_what_may_come_right_is_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings = place.load(f'{PLAIN}stdout_log = "/no/where/x.log"\nuser = "no-such-user"\n').warnings
    told = place.load(f'{PLAIN}stderr_log = "/no/where/x.log"\n').warnings
    assert told == (f"{place.file}, line 3: program.x.stderr_log: the directory of /no/where/x.log does not exist (yet)",)
    assert warnings == (
        f"{place.file}, line 3: program.x.stdout_log: the directory of /no/where/x.log does not exist (yet)",
        f"{place.file}, line 4: program.x.user: this box has no user 'no-such-user'",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    only_root = (
        f"{place.file}, line 3: program.x.user: only a daemon that runs as root can start a program as root; "
        "this one has user id 65533"
    )
    assert (
        only_root in place.load(f'{PLAIN}user = "root"\n').warnings
    )  # another may be: pytest's directory is not of that user
