"""The box itself: it boots, loses its power for real, and every boot is one of its own."""

import time

from labbox import Box


def test_what_was_not_synced_is_lost_and_what_was_is_there(tmp_path):
    box = Box(tmp_path)
    try:
        box.boot()
        first = box.boot_id()
        box.run("sh", "-c", "echo kept >/var/kept && sync /var/kept /var && echo lost >/var/lost")
        box.cut_power()
        box.boot()
        assert box.run("cat", "/var/kept").stdout == "kept\n"
        assert box.run("cat", "/var/lost", check=False).stdout == ""
        assert box.boot_id() != first
        second = box.boot_id()
        began = time.monotonic()
        assert float(box.run("cat", "/proc/uptime").stdout.split()[0]) < 100
        assert box.run("sh", "-c", "echo orderly >/var/orderly").returncode == 0
        box.reboot()
        assert box.run("cat", "/var/orderly").stdout == "orderly\n", "an orderly end writes everything"
        assert box.boot_id() not in {first, second}
        assert float(box.run("cat", "/proc/uptime").stdout.split()[0]) < time.monotonic() - began + 5
    finally:
        box.close()
    assert not box.disk_is_held()
