"""[offsite]: every mistake at once, and not one sentence or page that shows a secret."""

from __future__ import annotations

import json

import pytest
from config_kit import Place

from supervisor import config
from supervisor.features.offsite.settings import OffsiteSettings

PROGRAM = "[program.Pong]\n"


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    write(made, "password", "hunter2\n")
    return made


def write(place, name, text, mode=0o600):
    file = place.directory / name
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_the_files_are_found_beside_the_configuration(place):
    env_file = write(place, "env", "# mine\n\nAWS_ACCESS_KEY_ID=AKIA\nAWS_SECRET_ACCESS_KEY=s3cret\n")
    text = '[offsite]\nrepository = "s3:host/bucket"\npassword_file = "password"\nenv_file = "env"\nkeep_last = 3\n'
    found = place.settings(PROGRAM + text).offsite
    assert found == OffsiteSettings(
        repository="s3:host/bucket", password_file=f"{place.directory}/password", env_file=env_file, keep_last=3
    )


def test_no_listing_shows_a_secret(place):
    text = '[offsite]\nrepository = "rest:https://me:s3cret@host/x"\npassword_file = "password"\n'
    loaded = place.load(PROGRAM + text)
    listed = json.dumps([(key, value, str(origin)) for key, value, origin in config.explain(loaded)])
    assert "rest:https://me:***@host/x" in listed
    assert "s3cret" not in listed
    assert "hunter2" not in listed


NO_RESTIC = "it must be an absolute path, or begin with one of local:, sftp:, rest:, s3:, swift:, b2:, azure:, gs:, rclone:"
MISTAKES = {  # instead of the repository /srv with a good password
    "repository = '/srv'": "password_file is missing; name the file with the repository's password",
    "repository = 'copies'": f"repository, 'copies', is no repository of restic; {NO_RESTIC}",
    "repository = 'stfp:host:/x'": "repository, 'stfp:host:/x', is no repository of restic; did you mean sftp?",
    "repository = 'ftps://me:s3cret@h/'": "repository, 'ftps://me:***@h/', is no repository of restic; did you mean sftp?",
    'repository = "/srv\\u0007"': "repository has spaces at its ends or characters that cannot be printed; remove them",
    "repository = 's3:'": "repository, 's3:', names no place; docs/offsite.md has examples",
    "password_file = 'large'": (
        "password_file: HERE/large is not a text file with the repository's password; name another one"
    ),
    "password_file = 'empty'": "password_file: HERE/empty is empty; write the repository's password into it",
    "password_file = 'open'": "password_file: other users may read HERE/open, which holds secrets; chmod 600 HERE/open",
    "env_file = 'none'": ("env_file: HERE/none cannot be read: No such file or directory; correct the path, or its owner"),
    "env_file = 'bad'": "env_file: line 1 of HERE/bad is not NAME=VALUE (not shown)",
    "env_file = 'ours'": "env_file: line 2 of HERE/ours sets RESTIC_PASSWORD, which extralife sets; remove it",
    "check = 'sometimes'": (
        'check must be "off", "hourly", "daily HH:MM" or "weekly DAY HH:MM" such as "weekly sun 03:30", not \'sometimes\''
    ),
    "also = ['code']": "also, 'code', is no absolute path of a directory",
    "also = ['/']": "also, '/', is no absolute path of a directory",
    "sftp_command = 'ssh x -s sftp'": "sftp_command is of no use without an sftp: repository",
    "keep_last = 0\nkeep_hourly = 0\nkeep_daily = 0\nkeep_weekly = 0\nkeep_monthly = 0": (
        "keep_* are all 0, so no copy would stay; set one of them to 1 or more"
    ),
}


@pytest.mark.parametrize(("keys", "told"), MISTAKES.items())
def test_one_sentence_for_each_mistake(place, keys, told):
    write(place, "empty", "\n")
    write(place, "open", "hunter2", mode=0o644)
    write(place, "bad", "s3cret\n")
    write(place, "ours", "B2_ACCOUNT_ID=1\nRESTIC_PASSWORD=s3cret\n")
    write(place, "large", "x" * ((1 << 16) + 1))
    for key, value in (("repository", "/srv"), ("password_file", "password")):
        if key not in keys and "missing" not in told:
            keys = f"{key} = '{value}'\n{keys}"
    (sentence,) = place.errors(f"{PROGRAM}[offsite]\n{keys}\n")
    assert sentence.partition(": offsite.")[2].replace(str(place.directory), "HERE") == told


def test_the_place_of_a_mistake(place):
    write(place, "ours", " # mine\n\nLD_PRELOAD=/x\nPATHS=1\n1A=2\n_a=\n")
    keys = 'repository = "/srv"\nforget = "x"\npassword_file = "none"\nenv_file = "ours"\nsftp_command = "ssh"\n'
    places = [sentence.partition(":")[0] for sentence in place.errors(f"{PROGRAM}[offsite]\n{keys}")]
    assert places == [f"FILE, line {line}" for line in (4, 7, 5, 6, 6)]
    assert place.errors(f'{PROGRAM}[offsite]\nrepository = "/srv"\nkeep_last = 0\n') == [
        "FILE, line 2: offsite.password_file is missing; name the file with the repository's password"
    ]


@pytest.mark.parametrize("kept", ["last", "hourly", "daily", "weekly", "monthly"])
def test_one_kind_of_copy_that_stays_is_enough(place, kept):
    keys = "".join(f"keep_{each} = {int(each == kept)}\n" for each in ("last", "hourly", "daily", "weekly", "monthly"))
    found = place.settings(f'{PROGRAM}[offsite]\nrepository = "/srv"\npassword_file = "password"\n{keys}').offsite
    assert getattr(found, f"keep_{kept}") == 1


@pytest.mark.parametrize("repository", ["/srv", "local:x", "sftp:h:/x", "rest:https://h/", "rclone:r:x"])
def test_repositories(place, repository):
    way = 'sftp_command = "ssh x -s sftp"\n' if repository.startswith("sftp") else ""
    loaded = place.load(f'{PROGRAM}[offsite]\nrepository = "{repository}"\npassword_file = "password"\n{way}')
    assert (loaded.settings.offsite.repository, str(loaded.origins["offsite.repository"])) == (repository, f"{place.file}:3")
    assert loaded.settings.offsite.env_file == ""


def test_a_password_on_a_disk_that_is_not_mounted_does_not_refuse_a_start(place):
    loaded = place.load(f'{PROGRAM}[offsite]\nrepository = "/srv"\npassword_file = "/none/x"\n', starting=True)
    assert loaded.warnings[-1] == (
        f"{place.file}, line 4: offsite.password_file: /none/x cannot be read: No such file or directory; correct the path, or its owner"
    )
    assert loaded.settings.offsite.password_file == "/none/x"


def test_a_client_need_not_read_the_password(place):
    text = f'{PROGRAM}[offsite]\nrepository = "/srv"\npassword_file = "/none/x"\n'
    assert place.load(text, look=False).settings.offsite.on


def test_a_box_without_restic_is_told_the_package(place, monkeypatch):
    monkeypatch.setenv("PATH", str(place.directory))
    text = f'{PROGRAM}[offsite]\nrepository = "/srv"\npassword_file = "password"\n'
    loaded = place.load(text)
    write(place, "restic", "", mode=0o700)
    assert place.load(text).warnings == ()
    assert loaded.warnings == (
        f"{place.file}, line 2: restic is not installed: apt-get install restic; until then nothing is copied off this box",
    )
    write(place, "restic", "#!/bin/sh\necho restic 0.9.6 compiled with go1.13\n", mode=0o700)
    assert place.load(text).warnings[0].startswith(f"{place.file}, line 2: restic 0.9 is too old: install 0.14 or newer")
