"""The last good configuration on disk, and the child that is asked whether the next image would start."""

import errno
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from leaks import open_files

from supervisor import config, places
from supervisor.adapters import last_config, next_image
from supervisor.adapters.host import boot
from supervisor.config.whole_input import ConfigInput
from supervisor.lack import is_lack
from supervisor.model.settings import Paths


@pytest.fixture
def environ(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "state").mkdir()
    return Paths(str(tmp_path / "state"), str(tmp_path / "run"))


def given(tmp_path, text="[level]\nslots = 2\n"):
    return ConfigInput(str(tmp_path / "extralife.toml"), text, {"RL_LR": "1e-4"}, {"slots": "3"})


def test_what_is_kept_comes_back_whole(tmp_path, paths, environ):
    assert last_config.keep(paths, given(tmp_path), environ, 1e9) is None
    path = Path(paths.last_config)
    found = last_config.read(path)
    assert (found.given, found.wall_s, found.state_dir) == (given(tmp_path), 1e9, paths.state_dir)
    written = path.read_bytes()
    sealed(path, json.dumps({"version": 1, "wall_s": 1e9, "given": given(tmp_path).to_json()}))
    assert (path.read_bytes(), last_config.read(path)) == (written, found), "a version before has written it so"
    assert "slots = 2" not in repr(found)
    assert "1e-4" not in repr(found)


def test_every_flipped_byte_is_noticed(tmp_path, paths, environ):
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    path = Path(paths.last_config)
    good = path.read_bytes()
    for place in range(0, len(good) - 1, 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(ValueError):
            last_config.read(path)
    for length in range(0, len(good) - 1, 11):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError):
            last_config.read(path)


@pytest.mark.parametrize("place", ["newest", "none of them"])
def test_a_cut_between_the_two_renames_loses_nothing(tmp_path, paths, environ, place):
    last_config.keep(paths, given(tmp_path, "one = 1\n"), environ, 1e9)
    last_config.keep(paths, given(tmp_path, "two = 2\n"), environ, 2e9)
    path = Path(paths.last_config)
    path.unlink()
    if place == "none of them":
        Path(f"{path}.before").unlink()
    found = last_config.find(None, environ, {"state_dir": paths.state_dir})
    assert (None if found is None else found.given.text) == ("one = 1\n" if place == "newest" else None)


@pytest.mark.parametrize("named_by", ["flag", "variable"])
def test_what_another_state_directory_keeps_is_not_taken(tmp_path, environ, named_by):
    """A mistyped --state-dir must not start the daemon of the usual place, and train there."""
    usual = Paths(places.state_dir_for(environ), str(tmp_path / "run"))
    Path(usual.state_dir).mkdir(parents=True)
    last_config.keep(usual, given(tmp_path), environ, 1e9)
    assert last_config.find(None, environ, {}) is not None
    other = str(tmp_path / "other")
    flags = {"state_dir": other} if named_by == "flag" else {}
    variables = {} if named_by == "flag" else {"EXTRALIFE_STATE_DIR": other}
    assert last_config.find(None, environ | variables, flags) is None


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path, environ):
    error = last_config.keep(Paths(str(tmp_path / "nowhere"), "/run"), given(tmp_path), environ, 1e9)
    assert error is not None
    path = tmp_path / "nowhere" / "last-config"
    assert error == (
        f"the configuration in use could not be kept as {path}.new: No such file or directory; "
        "the next start would use an older one"
    )


def test_where_neither_configuration_can_be_used_the_mistakes_of_both_are_reported(tmp_path, paths, environ):
    flags = {"state_dir": paths.state_dir}
    assert last_config.in_place(["a: one"], None, environ, flags) is None, "none is kept"
    bad = ConfigInput(str(tmp_path / "extralife.toml"), f'[daemon]\nstate_dir = "{paths.state_dir}"\n[level]\nslots = -7\n')
    last_config.keep(paths, bad, environ, 1e9)
    with pytest.raises(config.ConfigError) as refused:
        last_config.in_place(["a: one"], None, environ, flags)
    first, head, *more = refused.value.errors
    assert (first, head) == ("a: one", "the last good configuration cannot be used either:")
    assert more
    elsewhere = ConfigInput(bad.path, f'[daemon]\nstate_dir = "{tmp_path}/other"\n[program.Pong]\n')
    last_config.keep(paths, elsewhere, environ, 1e9)
    with pytest.raises(config.ConfigError) as refused:
        last_config.in_place(["a: one"], None, environ, flags)
    kept = last_config.read(Path(paths.last_config))
    assert refused.value.errors == [
        "a: one", head, f"{kept.where}: was kept in {paths.state_dir} but names state directory {tmp_path}/other",
    ]  # fmt: skip


def sealed(path, body):
    """A kept file with a right digest, whatever is in it."""
    path.write_text(f"{hashlib.blake2b(body.encode(), digest_size=32).hexdigest()}\n{body}\n")
    path.chmod(0o600)


def test_each_of_the_two_kept_files_is_its_owners_alone(tmp_path, paths, environ):
    environ = environ | {"XDG_STATE_HOME": str(tmp_path / "home" / "below")}
    old = os.umask(0)
    try:
        for number in range(2):
            last_config.keep(paths, given(tmp_path, f"n = {number}\n"), environ, 1e9)
    finally:
        os.umask(old)
    assert {each.name: each.stat().st_mode & 0o777 for each in Path(paths.state_dir).iterdir()} == {
        "last-config": 0o600, "last-config.before": 0o600,
    }  # fmt: skip
    assert (tmp_path / "home" / "below" / "extralife").stat().st_mode & 0o777 == 0o700
    assert last_config.read(Path(f"{paths.last_config}.before")).given.text == "n = 0\n"


@pytest.mark.parametrize(("mode", "trusted"), [(0o600, True), (0o644, True), (0o620, False), (0o602, False), (0o666, False)])
def test_what_another_user_could_have_written_is_not_used(tmp_path, paths, environ, mode, trusted):
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    path = Path(paths.last_config)
    path.chmod(mode)
    if trusted:
        assert last_config.read(path).given == given(tmp_path)
    else:
        with pytest.raises(ValueError, match=f"^{path} could have been written by another user$"):
            last_config.read(path)


def test_only_a_file_of_our_own_is_read(tmp_path, paths, environ, monkeypatch):
    path, us = Path(paths.last_config), os.geteuid()
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    before = open_files()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with pytest.raises(ValueError, match=r"could have been written by another user$"):
        last_config.read(path)
    assert open_files() <= before


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"version": 2, "wall_s": 1.0, "given": ""}', "{path} was written by another version of extralife"),
        ('{"version": 1, "wall_s": 1.0, "given": "{}"}', "it is not what a configuration was made from"),
    ],
)
def test_a_whole_file_of_another_kind_is_named(paths, body, says):
    path = Path(paths.last_config)
    sealed(path, body)
    with pytest.raises(ValueError, match=f"^{re.escape(says.format(path=path))}$"):
        last_config.read(path)
    path.write_bytes(b"\xff\n\xff")
    with pytest.raises(ValueError, match=f"^{path} is damaged$"):
        last_config.read(path)


@pytest.mark.parametrize("body", ["{", "{}", "[]", "7", '{"version": 1}', '{"version": 1, "given": 7, "wall_s": 1.0}'])
def test_what_cannot_be_read_gives_way_to_the_one_before(tmp_path, paths, environ, body):
    for number in range(2):
        last_config.keep(paths, given(tmp_path, f"n = {number}\n"), environ, 1e9)
    sealed(Path(paths.last_config), body)
    found = last_config.find(None, environ, {"state_dir": paths.state_dir})
    assert found is not None
    assert (found.given.text, found.state_dir) == ("n = 0\n", paths.state_dir)


def test_a_container_without_a_home_keeps_its_configuration(tmp_path, paths, environ, monkeypatch):
    home, make = Path(places.state_dir_for(environ)), Path.mkdir

    def refused(path, *args, **options):
        if path == home:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", refused)
    assert last_config.keep(paths, given(tmp_path), environ, 1e9) is None
    assert last_config.read(Path(paths.last_config)).given == given(tmp_path)


def test_a_lost_record_of_the_directories_is_made_again_although_nothing_else_is(tmp_path, paths, environ):
    record = Path(places.pointer(places.state_dir_for(environ), given(tmp_path).path or ""))
    for _ in range(2):
        assert last_config.keep(paths, given(tmp_path), environ, 1e9) is None
        assert record.read_text() == f"{tmp_path}/extralife.toml\n{paths.state_dir}\n{paths.runtime_dir}\n"
        assert [each.name for each in record.parent.iterdir()] == [record.name]
        assert record.stat().st_mode & 0o777 == 0o600
        inode = record.stat().st_ino
        last_config.keep(paths, given(tmp_path), environ, 1e9)
        assert record.stat().st_ino == inode, "it is not written again"
        record.unlink()
    other = Paths(paths.state_dir, str(tmp_path / "other"))
    last_config.keep(other, given(tmp_path), environ, 1e9)
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    assert record.read_text().splitlines()[-1] == paths.runtime_dir, "it follows what changes"
    assert [each.name for each in record.parent.iterdir()] == [record.name]


def test_the_state_directory_is_found_in_the_order_of_what_names_it(tmp_path, environ, monkeypatch):
    """A flag, a variable, the file itself, the record of its last daemon, the usual place."""
    config_file = tmp_path / "extralife.toml"
    names = ("flag", "variable", "file", "pointer", "usual")
    dirs = {name: str(tmp_path / name) for name in names} | {"usual": places.state_dir_for(environ)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, each in dirs.items():
        Path(each).mkdir(parents=True, exist_ok=True)
        kept = ConfigInput(str(config_file), f"# {name}", {}, {} if name == "pointer" else {"state_dir": each})
        last_config.keep(Paths(each, str(tmp_path / "run")), kept, environ, 1e9)

    def found(flags, **more):
        kept = last_config.find(str(config_file), environ | more, flags)
        return None if kept is None else f"{kept.given.text} in {Path(kept.state_dir).name}"

    config_file.write_text('[daemon]\nstate_dir = "file"\nslots =\n')
    assert found({"state_dir": dirs["flag"]}, EXTRALIFE_STATE_DIR=dirs["variable"]) == "# flag in flag"
    assert found({"state_dir": None}, EXTRALIFE_STATE_DIR="~/variable") == "# variable in variable"
    assert found({}, EXTRALIFE_STATE_DIR="") == "# file in file", "a path of the working directory"
    config_file.unlink()
    assert found({}) == "# pointer in pointer"
    Path(places.pointer(dirs["usual"], str(config_file))).unlink()
    assert found({}) == "# usual in extralife"
    assert found({"state_dir": 7}) is None
    assert found({}, EXTRALIFE_STATE_DIR="a\0b") is None
    assert found({"state_dir": "~a\0b"}) is None, "no user has such a name"
    config_file.write_text('[daemon]\nstate_dir = "nowhere"\n')
    assert found({}) == "# usual in extralife"


def test_the_kept_one_is_used_in_place_of_a_bad_one_and_says_why(tmp_path, paths, environ):
    text = f'[daemon]\nstate_dir = "{paths.state_dir}"\n[level]\nslots = 2\n[program.Pong]\ncommand = ["true"]\n'
    kept = ConfigInput(str(tmp_path / "extralife.toml"), text, {}, {"slots": "3"})
    last_config.keep(paths, kept, environ, 1e9)
    loaded, instead = last_config.in_place(["a: one", "b: two"], None, environ, {"state_dir": paths.state_dir}) or (
        None,
        None,
    )
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(1e9))
    assert instead == last_config.Instead(("a: one", "b: two"), f"{tmp_path}/extralife.toml as of {when}")
    assert loaded is not None
    assert (loaded.settings.paths.state_dir, [each.name for each in loaded.settings.programs]) == (paths.state_dir, ["Pong"])
    assert last_config.Kept(ConfigInput(), 1e9, "/state").where == f"the embedded default as of {when}"


def test_a_file_that_is_gone_is_named_where_a_daemon_has_run_with_it(tmp_path, paths, environ, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = {"state_dir": paths.state_dir}
    assert last_config.lost_file(None, environ, flags) == "", "there never was one"
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    assert last_config.lost_file(None, environ, flags) == (
        f"{tmp_path}/extralife.toml: is gone, or its disk is not mounted, and no other configuration is found"
    )
    assert last_config.lost_file(str(tmp_path / "named.toml"), environ, flags) == "", "whoever names one is told of that one"
    assert last_config.lost_file(None, environ | {"EXTRALIFE_CONFIG": "/x.toml"}, flags) == ""
    assert last_config.lost_file(None, environ, {"state_dir": str(tmp_path / "other")}) == ""
    last_config.keep(paths, ConfigInput(None, "embedded"), environ, 1e9)
    assert last_config.lost_file(None, environ, flags) == "", "its last daemon had none either"


# --- the next image --------------------------------------------------------------------------------------------------


def child(tmp_path, source):
    script = tmp_path / "image.py"
    script.write_text(source)
    return [sys.executable, str(script)]


def test_a_check_that_lacks_descriptors_says_nothing_about_the_image(tmp_path):
    source = "import sys\nprint('supervisord: x: Too many open files in system', file=sys.stderr)\nsys.exit(1)"
    for child_of_a_lack in (source, "raise MemoryError"):
        with pytest.raises(OSError, match=r"Too many open files|MemoryError") as found:
            next_image.mistakes(child(tmp_path, child_of_a_lack))
        assert is_lack(found.value)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "import sys\nprint('one\\n two \\n', file=sys.stderr)\nsys.exit(1)",
            "the check of the configuration ended with 1: two",
        ),
        ("import sys\nsys.exit(3)", "the check of the configuration ended with 3: it printed nothing"),
        (
            "import sys\nprint('supervisord: a: warning: w', file=sys.stderr)\nsys.exit(2)",
            "the check of the configuration ended with 2: supervisord: a: warning: w",
        ),
        ("import os\nos.kill(os.getpid(), 9)", "the check of the configuration was ended by signal 9: it printed nothing"),
    ],
)
def test_an_image_that_names_no_mistake_is_told_by_its_last_line(tmp_path, source, told):
    assert next_image.mistakes(child(tmp_path, source)) == [told]


def test_an_image_that_hangs_or_cannot_be_started_is_reported_with_its_command(tmp_path):
    argv = child(tmp_path, "import time\ntime.sleep(60)")
    assert next_image.mistakes([*argv, "-n"], timeout_s=0.25) == [
        f"the check of the configuration did not end within 250ms: {sys.executable} {tmp_path}/image.py -n --check"
    ]
    gone = str(tmp_path / "python")
    assert next_image.mistakes([gone]) == [f"{gone} cannot be started: No such file or directory"]


class Passing:
    """A `time` that passes only while somebody sleeps; the file gets its next piece after so many sleeps."""

    def __init__(self, path, age_s, pieces=0):
        self.path, self.now_s, self.pieces = path, 1_000.0, pieces
        self.slept = []
        os.utime(path, (self.now_s - age_s,) * 2)

    def time(self):
        return self.now_s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds
        if self.pieces:
            self.pieces -= 1
            os.utime(self.path, (self.now_s,) * 2)


@pytest.mark.parametrize(
    ("age_s", "pieces", "most_s", "sleeps", "whole"),
    [
        (0.25, 0, 5.0, 1, True), (-0.25, 0, 5.0, 1, True), (0.5, 0, 5.0, 0, True), (-0.5, 0, 5.0, 0, True),
        (0.0, 3, 5.0, 4, True), (0.0, 99, 0.5, 2, False), (0.0, 99, 0.3, 1, False), (0.0, 99, 0.0, 0, False),
    ],
)  # fmt: skip
def test_how_long_a_file_is_waited_for(tmp_path, monkeypatch, age_s, pieces, most_s, sleeps, whole):
    path = tmp_path / "extralife.toml"
    path.touch()
    passing = Passing(path, age_s, pieces)
    monkeypatch.setattr(next_image, "time", passing)
    said = next_image.wait_until_written(None, {"EXTRALIFE_CONFIG": str(path)}, most_s)
    assert said == (None if whole else f"{path}: is still being written; try again once it is whole")
    assert passing.slept == [0.3] * sleeps


THIS = "a" * 32


class Terminal:
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("mark", "more", "attended"),
    [
        ("", {}, True),
        (THIS, {}, True),
        ("b" * 32, {}, False),
        (THIS, {"NOTIFY_SOCKET": "/run/systemd/notify"}, False),
        (THIS, {"EXTRALIFE_LISTEN_FD": "3"}, False),
        (THIS, {"EXTRALIFE_BOOT_FILES": "/nowhere"}, False),
    ],
)
def test_a_person_reads_along_at_a_terminal_where_a_daemon_lived_in_this_boot(
    tmp_path, paths, monkeypatch, mark, more, attended
):
    (tmp_path / "boot_id").write_text(f"{THIS}\n")
    environ = {"XDG_STATE_HOME": str(tmp_path / "home"), "EXTRALIFE_BOOT_FILES": str(tmp_path), **more}
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    kept = last_config.read(Path(paths.last_config))
    if mark:
        Path(paths.alive).write_bytes(boot.pack_mark(boot.AliveMark(mark, None, 10.0, 1e9, 10.0), 1))
    assert not last_config._is_interactive(kept, environ), "no terminal"
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert not last_config._is_interactive(kept, environ), "its errors go elsewhere"
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert last_config._is_interactive(kept, environ) is attended
    if attended:
        assert last_config.in_place(["a: one"], None, environ, {"state_dir": paths.state_dir}) is None
    monkeypatch.setattr(sys, "stdin", None)
    assert not last_config._is_interactive(kept, environ)
