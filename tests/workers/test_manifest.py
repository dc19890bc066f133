"""What lies on disk: the manifest of a checkpoint, names that come from files, the announced end of the box."""

import errno
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervised import OTHER, TOKEN

from workers import contract
from workers.contract import LeaveBy, Manifest

WRITTEN = Manifest("Pong", TOKEN, 3, OTHER, 5_000, 1.5e9, {"game": "Pong"}, {"b": (5, "00"), "a/b": (6, "11")})


def test_a_manifest_as_it_is_written():
    body = json.loads(WRITTEN.to_json())
    assert body.pop("self_digest") == "5fe9aeffeb08f79ce199d2d0af10e23c6db84fa126f01ea25cb9a7286529aba0"
    assert body == {
        "version": 1, "digest": "blake2b-256", "program": "Pong", "token": TOKEN, "attempt": 3, "boot_id": OTHER,
        "env_steps": 5_000, "created_wall_s": 1.5e9, "identity": {"game": "Pong"}, "mean_return": None,
        "files": {"a/b": {"size_bytes": 6, "digest": "11"}, "b": {"size_bytes": 5, "digest": "00"}},
    }  # fmt: skip
    assert Manifest.from_json(WRITTEN.to_json()) == WRITTEN


@given(st.data())
def test_a_changed_manifest_is_damage(data):
    text = WRITTEN.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(codec="utf-8")) + text[at + 1 :]
    try:
        found = Manifest.from_json(changed)
    except ValueError as error:
        assert str(error).startswith("not a checkpoint manifest: ")  # noqa: PT017
    else:
        assert found == WRITTEN


def changed(**values):
    """A manifest with other values, and the digest that fits to them."""
    body = {**json.loads(WRITTEN.to_json()), **values}
    del body["self_digest"]
    return json.dumps({**body, "self_digest": contract._digest_of(body)})


FILE = {"size_bytes": 1, "digest": "00"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed(version=2), "manifest of version 2 with digest 'blake2b-256'"),
        (changed(digest="md5"), "manifest of version 1 with digest 'md5'"),
        (WRITTEN.to_json().replace("5000", "5001"), "it does not match its own digest"),
        (changed(created_wall_s=-1), "it says that it was made at -1 s"),
        (changed(created_wall_s=253_402_300_800), "it says that it was made at 2.53402e+11 s"),
        (changed(files={"manifest.json": FILE}), "'manifest.json' conflicts with another file"),
        (changed(files={"a": FILE, "a/b/c": FILE}), "'a/b/c' conflicts with another file"),
        (changed(files={"manifest.json/a": FILE}), "'manifest.json/a' conflicts with another file"),
        (changed(files={"../a": FILE}), "'..' is not a valid name of a file below its directory"),
        (changed(files={"a": {}}), "KeyError 'size_bytes'"),
        ('{"version": 1e999}', "1e999 is not a finite number"),
        ('{"version": NaN}', "NaN is not a finite number"),
    ],
)
def test_a_manifest_that_is_none_is_refused_in_one_sentence(text, why):
    with pytest.raises(ValueError, match=f"^{re.escape(f'not a checkpoint manifest: {why}')}$"):
        Manifest.from_json(text)


def test_names_of_checkpoints():
    assert contract.parse_checkpoint_name(contract.checkpoint_name(500, TOKEN)) == (500, TOKEN)
    for name in ("ckpt-500", f"ckpt-0500.{TOKEN}", f"ckpt-500.{TOKEN}.tmp", f"ckpt-500.{TOKEN}.bad", "ckpt--5.ab", "x"):
        assert contract.parse_checkpoint_name(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a\0", "x" * 256, "é" * 128, "\udcff\ud800", 4, None, b"x"])
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match=r" is not a valid name of a file below its directory$"):
        contract.checked_name(name)
    with pytest.raises(ValueError, match=r" is not a valid name of a file below its directory$"):
        contract.checked_path(name)


def test_a_path_has_at_most_sixteen_names():
    assert contract.checked_path("/".join("a" * 16)) == "/".join("a" * 16)
    for path in ("/".join("a" * 17), "/a", "a/", "a//b", "a/../b"):
        with pytest.raises(ValueError, match=r" is not a valid name of a file below its directory$"):
            contract.checked_path(path)


def test_a_directory_that_turns_out_to_be_another_users_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65533)
    with pytest.raises(PermissionError) as refused:
        contract._make_private(tmp_path / "made")
    assert (refused.value.args, refused.value.filename) == ((errno.EPERM, "belongs to another user"), str(tmp_path / "made"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (contract.leave_by_text(1_700_000_000.9, "spot reclaim").encode(), LeaveBy(1_700_000_000.0, "spot reclaim")),
        (contract.leave_by_text(None, "x").encode(), LeaveBy(None, "x")),
        (b"unknown\n maintenance \n", LeaveBy(None, "maintenance")),
        (b"12\n\xff" + b"x" * 5000, LeaveBy(12.0, "\ufffd" + "x" * 4092)),
        (b"12", LeaveBy(12.0, "")),
        (b"", None),
        (b"soon\nx\n", None),
        (b"12.5\nx\n", None),
    ],
)
def test_the_end_that_is_announced(tmp_path, text, found):
    (tmp_path / "leave-by").write_bytes(text)
    assert contract.read_leave_by(tmp_path / "leave-by") == found
    assert contract.read_leave_by(tmp_path / "none") is None
