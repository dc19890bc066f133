"""[alerts]: every mistake at once, and not one sentence that shows a URL."""

import os

import pytest

from supervisor import config
from supervisor.features.alerts.config import alone
from supervisor.features.alerts.rules import KINDS
from supervisor.features.alerts.settings import AlertSettings

PROGRAM = "[program.Pong]\n"
SECRET = "json://me:hunter2@host/s3cret"


@pytest.mark.parametrize("text", ["8:00", "24:00", "08:60", "daily", "08:00 "])
def test_a_time_of_the_daily_report_that_makes_no_sense(place, text):
    assert place.errors(f'{PROGRAM}[alerts]\ncommand = ["/bin/true"]\nreport_at = "{text}"\n') == [
        f'FILE, line 4: alerts.report_at must be a time of day such as "08:00", or empty for none, not {text!r}'
    ]


def test_a_daily_report_needs_somebody_who_gets_it(place):
    assert place.settings(f'{PROGRAM}[alerts]\ncommand = ["/bin/true"]\nreport_at = "08:00"\n').alerts.report_at == "08:00"
    assert place.load(f'{PROGRAM}[alerts]\ncommand = ["/bin/true"]\nreport_at = "08:00"\n').warnings == ()
    by_url = place.load(f'{PROGRAM}[alerts]\nurls = ["ntfy://x"]\nreport_at = "08:00"\n').warnings
    assert not any("report_at" in sentence for sentence in by_url)
    told = place.load(f'{PROGRAM}[alerts]\nreport_at = "23:59"\n').warnings
    assert told == (
        (
            f"{place.file}, line 3: alerts.report_at has no target for the report, so it is only in systemd's journal: "
            "set urls, urls_file or command"
        ),
    )


def test_every_key(place):
    file = place.directory / "urls"
    file.write_text(f"  # mine\n\n{SECRET}\n  ntfy://topic\n")
    file.chmod(0o600)
    text = (
        '[alerts]\nurls = ["ntfy://topic"]\nurls_file = "urls"\ncommand = ["/bin/true", "x"]\nkinds = ["reboot", "fatal"]\n'
        'min_severity = "warning"\nat_most_per_h = 3\nsame_within_s = 60\ntimeout_s = 5\nkeep_days = 9\n'
    )
    found = place.settings(PROGRAM + text).alerts
    assert found == AlertSettings(
        ("ntfy://topic", SECRET), str(file), ("/bin/true", "x"), ("reboot", "fatal"), "warning", 3, 60.0, 5.0, 9
    )
    client = place.load(PROGRAM + text, look=False).settings.alerts
    assert client.urls == ("ntfy://topic",), "a client of another user may not read the file, and need not"


def test_all_mistakes_are_reported_at_once_and_none_shows_a_secret(place):
    place.file.touch()
    bad = (
        '[alerts]\nurl = "json://me:hunter2@host"\nurls = ["hunter2", 5, "ntfy://x"]\ncommand = "page-me"\n'
        'kinds = ["rebot", "zzz"]\nmin_severity = "grave"\nat_most_per_h = 0\ntimeout_s = 0\nurls_file = "none"\n'
    )
    told = place.errors(PROGRAM + bad)
    unreadable = "cannot be read: No such file or directory; correct the path, or its owner"
    assert sorted(told) == sorted(
        [
            "FILE, line 3: alerts.url is not a setting; did you mean urls?",
            "FILE, line 7: alerts.min_severity must be one of info, warning, critical, not 'grave'",
            "FILE, line 8: alerts.at_most_per_h must be at least 1, not 0",
            "FILE, line 9: alerts.timeout_s must be at least 1, not 0.0",
            "FILE, line 4: alerts.urls: entry 1 is not a URL such as ntfy://topic (not shown, because it may be a secret)",
            "FILE, line 4: alerts.urls: entry 2 is not a URL such as ntfy://topic (not shown, because it may be a secret)",
            f"FILE, line 10: alerts.urls_file: {place.directory}/none {unreadable}",
            "FILE, line 6: alerts.kinds: 'rebot' is not a kind of alert; did you mean reboot?",
            f"FILE, line 6: alerts.kinds: 'zzz' is not a kind of alert; there are {', '.join(KINDS)}",
            "FILE, line 5: alerts.command must be a list such as [\"/usr/local/bin/page-me\"], not 'page-me'",
        ]
    )
    assert not any("hunter2" in sentence for sentence in told)


def test_a_file_of_urls_that_others_may_read_is_refused(place):
    file = place.directory / "urls"
    file.write_text(SECRET)
    file.chmod(0o640)
    text = f'{PROGRAM}[alerts]\nurls_file = "urls"\n'
    assert place.errors(text) == [
        f"FILE, line 3: alerts.urls_file: other users may read {file}, which holds secrets; chmod 600 {file}"
    ]
    file.chmod(0o600)
    file.write_text(f"{SECRET}\nhunter2\n")
    assert place.errors(text) == [
        f"FILE, line 3: alerts.urls_file: line 2 of {file} is not a URL such as ntfy://topic (not shown)"
    ]
    file.unlink()
    os.mkfifo(file, 0o600)
    assert place.errors(text) == [
        f"FILE, line 3: alerts.urls_file: {file} is not a text file with one URL per line; name another one"
    ], "and it is not waited for"


def test_what_is_kept_of_a_configuration_has_no_copy_of_the_secrets(place):
    file = place.directory / "urls"
    file.write_text(SECRET)
    file.chmod(0o600)
    loaded = place.load(f'{PROGRAM}[alerts]\nurls_file = "urls"\n')
    assert "hunter2" not in loaded.given.to_json()
    assert config.load_input(loaded.given, place.environ, "kept").settings.alerts.urls == (SECRET,)
    file.unlink()
    kept = config.load_input(loaded.given, place.environ, "kept")
    assert kept.settings.alerts.urls == ()
    assert kept.warnings == (
        f"kept, line 3: alerts.urls_file: {file} cannot be read: No such file or directory; correct the path, or its owner",
    )
    file.write_text("hunter2\n")
    file.chmod(0o600)
    assert config.load_input(loaded.given, place.environ, "kept").warnings == (
        f"kept, line 3: alerts.urls_file: line 1 of {file} is not a URL such as ntfy://topic (not shown)",
    )


def test_what_is_odd_is_a_warning(place, monkeypatch):
    text = f'{PROGRAM}[alerts]\nurls = "ntfy://topic"\ncommand = ["no-such-hook"]\n'
    place.file.touch(0o600)
    place.load(text)
    place.file.chmod(0o644)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert place.load(text).warnings == (
        f"{place.file}, line 4: alerts.command: 'no-such-hook' is not found, or not executable",
        (
            f"{place.file}, line 3: alerts.urls need the package apprise, which is not installed: pip install 'extralife[alerts]' "
            "into extralife's environment; until then these URLs get no alerts"
        ),
        (
            f"{place.file}, line 3: alerts.urls are secrets, and other users of this box can read this file: move them, one a "
            "line, to a file of mode 0600 and name it as urls_file"
        ),
    )
    for mode in (0o600, 0o640, 0o601):
        place.file.chmod(mode)
        assert not any("are secrets" in sentence for sentence in place.load(text).warnings)
    given = place.load(text).given
    place.file.unlink()
    assert not any("are secrets" in sentence for sentence in config.load_input(given, place.environ, "kept").warnings)


def test_a_file_that_is_wrong_elsewhere_still_says_whom_to_tell(place):
    place.file.write_text(f'[zzz]\n[daemon]\nstate_dir = 5\n[alerts]\nurls = ["{SECRET}"]\ntimeout_s = "soon"\n')
    found = alone(str(place.file), {})
    assert (found.urls, found.timeout_s) == ((SECRET,), AlertSettings().timeout_s)
    bad = (
        'urls = ["ntfy://x", 5]\ncommand = 5\nkinds = 7\nreport_at = "8:00"\nmin_severity = "grave"\n'
        "at_most_per_h = 7\ntimeout_s = 0\nkeep_days = 3\nzzz = 1\n"
    )
    place.file.write_text(f"[alerts]\n{bad}")
    assert alone(str(place.file), {}) == AlertSettings(("ntfy://x",), at_most_per_h=7, keep_days=3)
    place.file.write_text("[alerts\n")
    with pytest.raises(config.ConfigError):
        alone(str(place.file), {})
