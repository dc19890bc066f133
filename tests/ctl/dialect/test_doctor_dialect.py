"""doctor on the other program of the same name, and on another daemon of this one."""

import pytest
from patients import levels, write

from supervisor.features.dialect import checks

SUPERVISORD = """
[supervisord]
nodaemon=true
[include]
files = conf.d/*.conf
"""


def test_another_supervisord_is_reported_and_our_own_is_not(installation, tmp_path):
    for pid, words in {
        7: "python3 /usr/bin/supervisord -n",
        8: "python -P -m supervisor -c x",
        9: "vi supervisord.conf",
    }.items():
        (tmp_path / f"root/proc/{pid}").mkdir()
        (tmp_path / f"root/proc/{pid}/cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    (tmp_path / "state" / "lock").write_text("8\n")
    (found,) = checks.other_supervisors(installation)
    assert found.what == "another supervisord runs: pid 7"


def test_a_daemon_of_another_configuration_is_called_so(installation):
    """The daemon was started with --config elsewhere, and doctor looks at the default configuration."""
    write(installation, "proc/8/cmdline", "python\0-P\0-m\0supervisor\0--config\0/srv/mine.toml\0")
    (found,) = checks.other_supervisors(installation)
    assert found.what == "another extralife daemon runs with another state directory: pid 8 with -c /srv/mine.toml"
    assert "extralifectl -c /srv/mine.toml doctor" in found.do


@pytest.mark.parametrize(
    ("section", "same"),
    [
        ("[program:atari]\ncommand=/opt/x/bin/python -m workers --program Pong ; mine\n", True),
        ("[program:night]\ncommand=/usr/local/bin/train --out {state}/programs/Pong\n", True),
        ("[program:el]\ncommand=/opt/extralife/current/.venv/bin/python -m supervisor\n", True),
        ("[program:web]\ncommand=/usr/bin/nginx\n", False),
        ("this is no configuration\n", False),
    ],
)
def test_supervisors_own_configuration_is_looked_through_for_the_same_trainings(installation, section, same):
    write(installation, "etc/supervisor/supervisord.conf", SUPERVISORD)
    write(installation, "etc/supervisor/conf.d/a.conf", section.format(state=installation.settings.paths.state_dir))
    (found,) = checks.other_supervisors(installation)
    assert found.level == ("bad" if same else "ok")
    assert ("a.conf starts" in found.what) is same


def test_a_running_supervisord_is_asked_for_by_the_configuration_that_it_was_given(installation, tmp_path):
    write(installation, "srv/mine.conf", "[program:Pong]\ncommand=python -m workers --program Pong\n")
    write(installation, "proc/7/cmdline", "python3\0/usr/bin/supervisord\0-c\0/srv/mine.conf\0")
    found = list(checks.other_supervisors(installation))
    assert levels(found) == ["bad", "warn"]
    assert "srv/mine.conf starts Pong" in found[0].what
    assert found[1].what == "another supervisord runs: pid 7"


def test_supervisor_that_is_started_at_boot_is_reported(installation):
    write(installation, "etc/systemd/system/multi-user.target.wants/supervisor.service")
    (found,) = checks.other_supervisors(installation)
    assert (found.level, "started at boot" in found.what) == ("warn", True)
