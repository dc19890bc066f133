"""Durable writes: the new content or the old one, whatever goes wrong on the way."""

import os
import stat

import pytest

from supervisor.adapters import durable


def test_the_new_content_takes_the_place_of_the_old_one(tmp_path):
    path, aside = tmp_path / "kept", tmp_path / "kept.new"
    aside.write_text("left over by a daemon that was killed")
    seen = []
    for text in ("one", "two"):
        durable.replace(path, text.encode(), aside=aside, before_rename=lambda: seen.append(aside.read_text()))
        assert path.read_text() == text
    assert seen == ["one", "two"], "it is whole before it is renamed"
    assert [item.name for item in tmp_path.iterdir()] == ["kept"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_the_old_content_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    durable.replace(path, b"old", aside=tmp_path / "kept.new")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        durable.replace(path, b"new", aside=tmp_path / "kept.new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["kept"]


def test_a_link_in_the_place_of_a_new_file_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "new").symlink_to(tmp_path / "secret")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "somebody's").touch()
    with pytest.raises(FileExistsError):
        durable.create(tmp_path / "new", b"x")
    durable.replace(tmp_path / "kept", b"x", aside=tmp_path / "new")
    assert (tmp_path / "secret").read_text() == "secret"
    assert (tmp_path / "kept").read_bytes() == b"x"


@pytest.mark.usefixtures("no_umask")
def test_a_new_file_is_its_owners_alone_unless_another_mode_is_asked_for(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))  # a short write goes on where it stopped
    durable.create(tmp_path / "secret", b"0123456789")
    assert (tmp_path / "secret").read_bytes() == b"0123456789"
    durable.create(tmp_path / "public", b"x", 0o644)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("secret", "public")] == [0o600, 0o644]
