"""The last good configuration on disk, and the child that is asked whether the next image would start."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervisor import config, places
from supervisor.adapters import last_config, leftovers, next_image
from supervisor.adapters.host import boot
from supervisor.config.whole_input import ConfigInput
from supervisor.model.settings import Paths


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "state").mkdir()
    return Paths(str(tmp_path / "state"), str(tmp_path / "run"))


def given(tmp_path: Path, text: str = "[level]\nslots = 2\n") -> ConfigInput:
    return ConfigInput(str(tmp_path / "extralife.toml"), text, {"RL_LR": "1e-4"}, {"slots": "3"})


def test_what_is_kept_comes_back_whole(tmp_path: Path, paths: Paths, environ: dict[str, str]) -> None:
    assert last_config.keep(paths, given(tmp_path), environ, 1e9) is None
    found = last_config.read(Path(paths.last_config))
    assert (found.given, found.wall_s, found.state_dir) == (given(tmp_path), 1e9, paths.state_dir)
    assert Path(paths.last_config).stat().st_mode & 0o777 == 0o600
    assert "slots = 2" not in repr(found)
    assert "1e-4" not in repr(found)


def test_the_same_is_not_written_again(tmp_path: Path, paths: Paths, environ: dict[str, str]) -> None:
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    before = Path(paths.last_config).stat().st_ino
    last_config.keep(paths, given(tmp_path), environ, 2e9)
    assert Path(paths.last_config).stat().st_ino == before
    assert not Path(f"{paths.last_config}.before").exists()


def test_every_flipped_byte_is_noticed(tmp_path: Path, paths: Paths, environ: dict[str, str]) -> None:
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
def test_a_cut_between_the_two_renames_loses_nothing(
    tmp_path: Path, paths: Paths, environ: dict[str, str], place: str
) -> None:
    last_config.keep(paths, given(tmp_path, "one = 1\n"), environ, 1e9)
    last_config.keep(paths, given(tmp_path, "two = 2\n"), environ, 2e9)
    path = Path(paths.last_config)
    path.unlink()
    if place == "none of them":
        Path(f"{path}.before").unlink()
    found = last_config.find(None, environ, {"state_dir": paths.state_dir})
    assert (None if found is None else found.given.text) == ("one = 1\n" if place == "newest" else None)


def test_it_is_found_by_the_pointer_when_the_file_is_gone(tmp_path: Path, paths: Paths, environ: dict[str, str]) -> None:
    kept = ConfigInput(str(tmp_path / "extralife.toml"), "x = 1\n")
    last_config.keep(paths, kept, environ, 1e9)
    found = last_config.find(str(tmp_path / "extralife.toml"), environ, {})
    assert found is not None
    assert found.given == kept
    assert last_config.find(str(tmp_path / "another.toml"), environ, {}) is None
    assert places.pointed(kept.path, environ) == {"state_dir": paths.state_dir, "runtime_dir": paths.runtime_dir}


@pytest.mark.parametrize("named_by", ["flag", "variable"])
def test_what_another_state_directory_keeps_is_not_taken(tmp_path: Path, environ: dict[str, str], named_by: str) -> None:
    """A mistyped --state-dir must not start the daemon of the usual place, and train there."""
    usual = Paths(places.state_dir_for(environ), str(tmp_path / "run"))
    Path(usual.state_dir).mkdir(parents=True)
    last_config.keep(usual, given(tmp_path), environ, 1e9)
    assert last_config.find(None, environ, {}) is not None
    other = str(tmp_path / "other")
    flags = {"state_dir": other} if named_by == "flag" else {}
    variables = {} if named_by == "flag" else {"EXTRALIFE_STATE_DIR": other}
    assert last_config.find(None, environ | variables, flags) is None


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, paths: Paths, environ: dict[str, str]) -> None:
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    path = Path(paths.last_config)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert last_config.find(None, environ, {"state_dir": paths.state_dir}) is None


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path, environ: dict[str, str]) -> None:
    error = last_config.keep(Paths(str(tmp_path / "nowhere"), "/run"), given(tmp_path), environ, 1e9)
    assert error is not None
    path = tmp_path / "nowhere" / "last-config"
    assert error == (
        f"the configuration in use could not be kept as {path}.new: No such file or directory; "
        "the next start would use an older one"
    )


def test_where_neither_configuration_can_be_used_the_mistakes_of_both_are_told(
    tmp_path: Path, paths: Paths, environ: dict[str, str]
) -> None:
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


# --- the next image --------------------------------------------------------------------------------------------------


def child(tmp_path: Path, source: str) -> list[str]:
    script = tmp_path / "image.py"
    script.write_text(source)
    return [sys.executable, str(script)]


def test_an_image_that_would_start_has_no_mistakes(tmp_path: Path) -> None:
    assert next_image.mistakes(child(tmp_path, "import sys\nassert sys.argv[1:] == ['--check']\nprint('config OK')")) == []


def test_its_mistakes_are_told_one_by_one(tmp_path: Path) -> None:
    source = "import sys\nfor word in ('warning: w', 'a: one', 'b: two'): print('supervisord: ' + word, file=sys.stderr)\nsys.exit(2)"
    assert next_image.mistakes(child(tmp_path, source)) == ["a: one", "b: two"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_of_that_name", "ended with 1: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("import os\nos.kill(os.getpid(), 11)", "was ended by signal 11: it printed nothing"),
        ("import time\ntime.sleep(60)", "did not end within 0.5 s"),
    ],
)
def test_an_image_that_cannot_be_asked_would_not_start(tmp_path: Path, source: str, told: str) -> None:
    (sentence,) = next_image.mistakes(child(tmp_path, source), timeout_s=0.5 if "sleep" in source else 30.0)
    assert told in sentence


def test_an_interpreter_that_is_gone_would_not_start(tmp_path: Path) -> None:
    assert next_image.mistakes([str(tmp_path / "python")]) == [
        f"{tmp_path}/python cannot be started: No such file or directory"
    ]


def test_the_child_gets_nothing_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    assert next_image.mistakes(child(tmp_path, "import os, sys\nsys.exit('NOTIFY_SOCKET' in os.environ)")) == []


def test_the_child_stays_in_the_daemons_session_and_is_marked(tmp_path: Path) -> None:
    """A child in another session without a mark is taken for an orphan of a killed shim, and killed with it."""
    source = (
        "import os, sys\n"
        f"ours = os.getsid(0) == {os.getsid(0)} and os.getpgid(0) == os.getpid() and {leftovers.ENV!r} in os.environ\n"
        "sys.exit(None if ours else 'in another session')"
    )
    assert next_image.mistakes(child(tmp_path, source)) == []


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "extralife.toml"
    path.write_text("half")
    pieces = [" more"] * 4

    def write(_seconds: float) -> None:
        if pieces:
            path.write_text(path.read_text() + pieces.pop())

    # Now is the moment of the last write, and between two looks the next piece comes.
    monkeypatch.setattr(next_image, "time", SimpleNamespace(time=lambda: path.stat().st_mtime, sleep=write))
    assert next_image.wait_until_written(str(path), {}) is None
    assert path.read_text() == "half more more more more"
    path.write_text("again")
    assert next_image.wait_until_written(str(path), {}, most_s=0.0) is not None, "written a moment ago"


@pytest.mark.parametrize("age_s", [60.0, -3600.0])
def test_an_old_file_is_not_waited_for_nor_one_of_the_future(tmp_path: Path, age_s: float) -> None:
    path = tmp_path / "extralife.toml"
    path.write_text("whole")
    os.utime(path, (time.time() - age_s,) * 2)
    assert next_image.wait_until_written(str(path), {}, most_s=0.0) is None
    assert next_image.wait_until_written(str(tmp_path / "nothing"), {}) is None


THIS = "a" * 32


class Terminal:
    def isatty(self) -> bool:
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
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, mark: str, more: dict[str, str], attended: bool
) -> None:
    (tmp_path / "boot_id").write_text(f"{THIS}\n")
    environ = {"EXTRALIFE_BOOT_FILES": str(tmp_path), **more}
    last_config.keep(paths, given(tmp_path), environ, 1e9)
    kept = last_config.read(Path(paths.last_config))
    if mark:
        Path(paths.alive).write_bytes(boot.pack_mark(boot.AliveMark(mark, None, 10.0, 1e9, 10.0), 1))
    assert not last_config._is_interactive(kept, environ), "no terminal"
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(sys, stream, Terminal())
    assert last_config._is_interactive(kept, environ) is attended
