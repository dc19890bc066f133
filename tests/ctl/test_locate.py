"""Which daemon is meant: flags, environment, the daemon's configuration, defaults."""

import os
from types import SimpleNamespace

import pytest
from running import ctl
from serving import served

from supervisor import config, places
from supervisor.ctl import locate
from supervisor.ctl.outcome import Failed, Options


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    for key in ("EXTRALIFE_CONFIG", "EXTRALIFE_STATE_DIR", "EXTRALIFE_RUNTIME_DIR", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    monkeypatch.chdir(tmp_path)


def options(**given):
    made = Options()
    for key, value in given.items():
        setattr(made, key, value)
    return made


CONFIG = """
[level]
slots = 1
[daemon]
state_dir = "{state}" # here
runtime_dir = '{runtime}'
[program.Pong]
"""


def test_it_finds_what_the_daemon_uses(tmp_path, monkeypatch):
    """Same answer as the whole configuration gives, over every way of saying it."""
    file = tmp_path / "extralife.toml"
    cases = [
        ("[program.Pong]\n", {}, {}),
        (CONFIG.format(state=tmp_path / "s", runtime=tmp_path / "r"), {}, {}),
        ('[daemon]\nstate_dir = "relative"\n[program.Pong]\n', {}, {}),
        ('[daemon]\nstate_dir = "~/tilde"\n[program.Pong]\n', {}, {}),
        ('daemon = { runtime_dir = "/tmp/xl-r" }\n[program.Pong]\n', {}, {}),
        ("[program.Pong]\n", {"EXTRALIFE_STATE_DIR": str(tmp_path / "e")}, {}),
        (CONFIG.format(state=tmp_path / "s", runtime=tmp_path / "r"), {"EXTRALIFE_RUNTIME_DIR": str(tmp_path / "er")}, {}),
        ("[program.Pong]\n", {"STATE_DIRECTORY": str(tmp_path / "sd"), "RUNTIME_DIRECTORY": str(tmp_path / "rd")}, {}),
        ("[program.Pong]\n", {"XDG_RUNTIME_DIR": "/dev/shm"}, {}),
        (CONFIG.format(state=tmp_path / "s", runtime=tmp_path / "r"), {}, {"state_dir": str(tmp_path / "flag")}),
    ]
    for text, environ, flags in cases:
        file.write_text(text)
        with monkeypatch.context() as patch:
            for key, value in environ.items():
                patch.setenv(key, value)
            paths = config.load(str(file), os.environ, flags, look=False).settings.paths
            found = options(config_file=str(file), **flags)
            assert (locate.socket_path(found), locate.state_dir(found)) == (paths.socket, paths.state_dir), text
            assert locate.socket_path(options(**flags)) == paths.socket, "./extralife.toml is found by itself"


def test_the_defaults(tmp_path):
    assert places.state_dir_for({"STATE_DIRECTORY": "/a:/b", "HOME": "/h"}) == "/a"
    assert places.state_dir_for({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == "/x/extralife"
    assert places.state_dir_for({"HOME": "/h"}) == "/h/.local/state/extralife"
    assert places.runtime_dir_for("/s", {"RUNTIME_DIRECTORY": "/run/a:/run/b"}) == "/run/a"
    assert places.find_config({"HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    "bad", ["[program.Pongg]\nbatch_siz = 3\n", "[program.Pong\n", 'x = "never ends\n', "\x00\n", "[level]\nslots = 'no'\n"]
)
def test_a_bad_edit_keeps_nobody_from_the_running_daemon(tmp_path, bad):
    file = tmp_path / "x.toml"
    file.write_text(CONFIG.format(state=tmp_path / "s", runtime=tmp_path / "r") + bad)
    assert locate.socket_path(options(config_file=str(file))) == str(tmp_path / "r" / "supervisor.sock")
    assert locate.settings(options(config_file=str(file))) is None


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(Failed, match="cannot be read: No such file or directory; name another file with -c"):
        locate.socket_path(options(config_file=str(tmp_path / "none.toml")))
    told = ctl("-c", str(tmp_path / "none.toml"), "pid")
    assert told.stdout.startswith(f"{tmp_path}/none.toml: cannot be read")
    assert told.returncode == 1


def test_a_socket_says_nothing_about_the_state_directory():
    assert locate.state_dir(options(socket="/x.sock")) is None
    assert locate.state_dir(options(socket="/x.sock", state_dir="/s")) == "/s"


def test_end_to_end(backend, socket_path, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(CONFIG.format(state=tmp_path / "s", runtime=socket_path.parent))
    with served(backend, socket_path):
        assert ctl("-c", str(file), "pid").stdout == "1234\n"
        assert ctl("pid", EXTRALIFE_CONFIG=str(file)).stdout == "1234\n"
        assert ctl("--state-dir=/nowhere", "pid", EXTRALIFE_RUNTIME_DIR=str(socket_path.parent)).stdout == "1234\n"


@pytest.mark.parametrize(
    ("size_mb", "writable", "found"),
    [
        (64, ("/tmp",), "/tmp/"), (64, ("/run", "/tmp"), "/run/"), (64, (), "/dev/shm/"), (256, ("/run", "/tmp"), "/dev/shm/"),
        (None, ("/tmp",), "/tmp/"),
    ],
)  # fmt: skip
def test_a_small_dev_shm_is_left_to_the_data_loaders(monkeypatch, size_mb, writable, found):
    def sizes(_path):
        return SimpleNamespace(f_blocks=(size_mb or 0) << 8, f_frsize=4096)

    monkeypatch.setattr(places.os, "statvfs", sizes)
    monkeypatch.setattr(places.os.path, "isdir", lambda _path: size_mb is not None)
    monkeypatch.setattr(places.os, "access", lambda path, _mode: path in writable)
    monkeypatch.setattr(places, "_on_tmpfs", lambda _path: False)
    assert places.runtime_dir_for("/s", {}).startswith(f"{found}extralife-{os.geteuid()}-")
