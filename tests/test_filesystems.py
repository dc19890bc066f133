"""What a path lies on, by the kernel's own list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools import ROOT

from supervisor.filesystems import kind_of, shared, unsafe


def test_the_mount_that_is_nearest_counts_and_of_two_the_newer(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text(
        "/dev/vda / ext4 rw 0 0\nthere:/x /data nfs4 rw 0 0\nnone /data/my\\040disk xfs rw 0 0\nnone /mnt ext4 rw 0 0\n"
        "none /mnt vfat rw 0 0\nnone /data/a\\011b\\012c\\134d btrfs rw 0 0\n"
    )
    found = {path: kind_of(Path(path), str(tmp_path)) for path in ("/", "/data/a", "/data/my disk/a", "/database", "/mnt/x")}
    assert kind_of(Path("/data/a\tb\nc\\d/e"), str(tmp_path)) == "btrfs"
    assert found == {"/": "ext4", "/data/a": "nfs4", "/data/my disk/a": "xfs", "/database": "ext4", "/mnt/x": "vfat"}
    assert kind_of(Path("/"), str(tmp_path / "none")) == ""


def test_a_real_mount_is_seen_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    ask = f"from pathlib import Path; from supervisor.filesystems import kind_of; print(kind_of(Path({str(tmp_path)!r}, 'link')))"
    script = f'mount -t ramfs none "{tmp_path}/disk" && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"this machine lets nobody mount in a namespace: {done.stderr.strip()[-200:]}")
    assert done.stdout == "ramfs\n"
    assert "a reboot deletes it" in unsafe("ramfs")


def test_a_network_volume_of_a_rented_container_is_shared() -> None:
    assert [kind for kind in ("fuse", "fuse.juicefs", "nfs4", "fuseblk", "ext4", "overlay", "") if shared(kind)] == [
        "fuse", "fuse.juicefs", "nfs4",
    ]  # fmt: skip
