"""A state directory whose mount is missing is not begun anew. Real mounts, in a mount namespace of the test's own."""

import subprocess
import sys

import pytest
from attempts_kit import REPO

from supervisor.adapters.host.known_mount import mount_point, record_of, refuse_if_missing, remember

STORY = """
import subprocess, sys
from pathlib import Path
from supervisor.adapters.host.known_mount import mount_point, refuse_if_missing, remember
disk, cache = Path(sys.argv[1]), Path(sys.argv[2])
mount = ["mount", "-t", "tmpfs", "tmpfs", str(disk)]
subprocess.run(mount, check=True)
state = disk / "deep" / "state"
state.mkdir(parents=True)
assert mount_point(str(state)) == str(disk), mount_point(str(state))
assert remember(str(state), cache) == ""
refuse_if_missing(str(state), cache)
subprocess.run(["umount", str(disk)], check=True)
try:
    refuse_if_missing(str(state), cache)
except OSError as error:
    print(error.strerror)
subprocess.run(mount, check=True)
refuse_if_missing(str(state), cache)
print("fine again")
"""


def test_a_start_on_a_missing_mount_is_refused_until_it_is_there(tmp_path):
    disk, cache = tmp_path / "disk", tmp_path / "cache"
    disk.mkdir()
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    args = ["unshare", "-rm", sys.executable, "-c", STORY, str(disk), str(cache)]
    done = subprocess.run(args, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = record_of(str(disk / "deep" / "state"), cache)
    assert done.stdout == (
        f"the state directory {disk}/deep/state was on the file system mounted at {disk}, and nothing is mounted there: "
        f"mount it; to begin anew without it, remove {record}\nfine again\n"
    )


def test_a_mount_point_that_is_gone_altogether_is_missing_too(tmp_path):
    record = record_of(str(tmp_path / "none" / "state"), tmp_path)
    record.write_text(f'{{"mount_point": "{tmp_path}/none"}}')
    with pytest.raises(
        OSError, match=r"^\[Errno 6\] the state directory .* mounted at .*/none, and nothing is mounted there"
    ):
        refuse_if_missing(str(tmp_path / "none" / "state"), tmp_path)


def test_the_root_file_system_leaves_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr("supervisor.adapters.host.known_mount.mount_point", lambda _: "/")
    record = record_of(str(tmp_path), tmp_path / "cache")
    record.parent.mkdir()
    record.write_text("{}")
    assert remember(str(tmp_path), tmp_path / "cache") == ""
    assert not record.exists(), "the state has moved there"
    assert mount_point("/") == "/"
