"""A configuration from another box: only the places change, and an odd form is refused."""

from __future__ import annotations

import tomllib

import pytest

from supervisor.config.moved import NotMoved, here, moved

TEXT = """# mine
[daemon]
state_dir = "/old"  # there
runtime_dir = "/run/old"
log_level = "debug"
[program.Pong]
lr = 0.1  # good
"""
WANTED = here("/new", None, "s3:host/b", {"password_file": "/etc/pw"})


def test_only_the_places_change():
    made = moved(TEXT, WANTED)
    body = tomllib.loads(made)
    assert body["daemon"] == {"state_dir": "/new", "log_level": "debug"}
    assert body["offsite"] == {"repository": "s3:host/b", "password_file": "/etc/pw"}
    assert "# mine" in made
    assert "lr = 0.1  # good" in made
    assert moved(made, WANTED) == made, "asked again it changes nothing"


def test_all_other_lines_stay_letter_by_letter():
    text = TEXT.replace("\n[program", "\n[offsite] # off\nsftp_command = 'ssh'\n[program")
    files = {"password_file": '/etc/"pw"', "env_file": "/etc/env"}
    assert moved(text, here("/new", "/run/new", "s3:host/b", files)) == (
        '# mine\n[daemon]\nstate_dir = "/new"\nruntime_dir = "/run/new"\nlog_level = "debug"\n'
        '[offsite] # off\nrepository = "s3:host/b"\npassword_file = "/etc/\\"pw\\""\nenv_file = "/etc/env"\n'
        "# sftp_command = 'ssh'\n[program.Pong]\nlr = 0.1  # good\n"
    )
    assert moved("[program.Pong]\n", here("/new", None, "/srv", {})) == (
        '[program.Pong]\n\n[daemon]\nstate_dir = "/new"\n\n[offsite]\nrepository = "/srv"\n'
    )


def test_the_way_to_an_sftp_server_is_this_box_s():
    text = '[offsite]\nsftp_command = "ssh -i /old/key"\n'
    assert "sftp_command" not in tomllib.loads(moved(text, WANTED))["offsite"]
    wanted = here("/new", None, "sftp:h:/d", {}, "ssh -i /new/key")
    assert tomllib.loads(moved(text, wanted))["offsite"]["sftp_command"] == "ssh -i /new/key"


BY_HAND = (
    "set daemon.state_dir, daemon.runtime_dir, offsite.repository, offsite.sftp_command, offsite.password_file by hand: it is "
    "written in a form that cannot be edited automatically"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('daemon = { state_dir = "/old" }\n', BY_HAND),
        ('[daemon]\nstate_dir = """\n/old"""\n', BY_HAND),
        ("daemon = 3\n", BY_HAND),
        ("[daemon", "it is not valid TOML: Expected ']' at the end of a table declaration (at end of document)"),
    ],
)
def test_an_odd_form_is_refused(text, why):
    with pytest.raises(NotMoved) as refused:
        moved(text, WANTED)
    assert str(refused.value) == why
