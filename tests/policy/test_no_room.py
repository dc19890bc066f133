"""Which file system a worker died of, if it had no room: one row a rule."""

import pytest

from supervisor.policy.worker.no_room import Disk, clause

MIB = 1 << 20
SHM, HOME, FULL = Disk("/dev/shm", 64 * MIB, 63 * MIB), Disk("/state", 10_000 * MIB, 9_000 * MIB), Disk("/tmp", 100 * MIB, 0)
LOADER = (
    "RuntimeError: DataLoader worker (pid 61) is killed by signal: Bus error. It is possible that dataloader's workers are"
)
NO_ROOM = "OSError: [Errno 28] No space left on device"
SHORT = "/dev/shm has only 64 MiB in all: start the container with --shm-size"


@pytest.mark.parametrize(
    ("signal", "line", "disks", "told"),
    [
        (7, "", (SHM, HOME), SHORT),
        (None, LOADER, (SHM, HOME), SHORT),
        (None, f"{NO_ROOM}: '/state/runs/x.pt'", (SHM, HOME), "/state (10,000 MiB) had no room, 9,000 MiB are free now"),
        (None, NO_ROOM, (SHM, FULL), "/tmp (100 MiB) is full: make room there"),
        (None, NO_ROOM, (SHM, Disk("/tmp", MIB, MIB, has_inodes=False)), "/tmp has no free inode: remove files there"),
        (7, "", (Disk("/dev/shm", 2048 * MIB, 2048 * MIB),), ""),
        (None, NO_ROOM, (SHM, HOME), ""),
        (None, "ValueError: bad shape", (SHM, FULL), ""),
        (11, "", (SHM, FULL), ""),
        (7, "", (HOME,), ""),
    ],
)
def test_the_file_system_without_room_is_named(signal, line, disks, told):
    assert clause(signal, ("step 5", line) if line else (), disks) == told
