"""What tells one box from another, read from this machine and from a directory."""

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from tools import MEMORY_DIR

from supervisor.adapters.host import box_identity
from supervisor.adapters.host.boot import BootFiles, is_container
from supervisor.adapters.host.box_identity import witnesses
from supervisor.policy.box.box_identity import WITNESSES

THIS_BOX = BootFiles()


def given(tmp_path: Path, **files: str) -> dict[str, str]:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return witnesses(BootFiles.of({"EXTRALIFE_BOOT_FILES": str(tmp_path)}))


def test_this_machine_says_the_same_twice():
    found = witnesses(THIS_BOX)
    assert found == witnesses(THIS_BOX)
    assert bool(found.get("hostname")) != is_container(), "a container's name says nothing"
    assert "GiB" in found["hardware"]
    assert set(found) <= set(WITNESSES)
    assert all(found.values())


def test_a_directory_in_place_of_the_system(tmp_path):
    assert given(tmp_path) == {}, "nothing there: nothing known, and not the system's own"
    found = given(
        tmp_path, machine_id="a1b2\n", hostname="alpha\n", product_uuid="4C4C4544-0042", cards="aa:bb\nAA:CC\n",
        gpus="GPU-1 GPU-2", hardware="a board, 2 CPUs\n",
    )  # fmt: skip
    assert found == {
        "product": digest_of("4c4c45440042"), "machine": digest_of("a1b2"), "hostname": "alpha",
        "cards": ",".join(sorted([digest_of("aa:bb"), digest_of("aa:cc")])),
        "gpus": ",".join(sorted([digest_of("gpu-1"), digest_of("gpu-2")])), "hardware": "a board, 2 CPUs",
    }  # fmt: skip
    assert found == given(tmp_path, product_uuid="4c4c45440042", cards="aa:cc\naa:bb\n"), "however it is written"


def test_garbage_raises_nothing(tmp_path):
    (tmp_path / "machine_id").mkdir()
    (tmp_path / "hostname").write_bytes(b"\xff\x00name")
    assert given(tmp_path, hardware="x" * 65_537) == {"hostname": "\ufffd\x00name", "hardware": "x" * 65_536}


@pytest.fixture
def box(tmp_path, monkeypatch):
    """The system's own places, below a directory; `box(path, text)` writes one of them."""
    monkeypatch.setattr(box_identity, "Path", lambda path: Path(f"{tmp_path}{path}"))
    assert str(box_identity._PRODUCT) == "/sys/class/dmi/id/product_uuid"
    monkeypatch.setattr(box_identity, "_PRODUCT", tmp_path / "sys/class/dmi/id/product_uuid")

    def place(path: str, text: str) -> Path:
        file = Path(f"{tmp_path}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    (tmp_path / "run").mkdir()
    return place


def digest_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8, person=b"extralife-box").hexdigest()


def test_where_a_box_says_which_one_it_is(box):
    """None of these places may change its spelling: every box would be another one after the upgrade."""
    for text in (None, "uninitialized\n"):
        assert text is None or box("/etc/machine-id", text)
        assert "machine" not in witnesses(THIS_BOX)
    box("/etc/machine-id", "abc\n")
    for name, address in (("eth0", "AA:BB\n"), ("eth1", "aa:cc\n")):
        box(f"/sys/class/net/{name}/address", address)
        box(f"/sys/class/net/{name}/device/vendor", "x")
    box("/sys/class/net/veth3/address", "ee:ee\n")  # a container's own: no device is behind it
    for number, text in enumerate(("Model: H200\nGPU UUID: \t GPU-1\n", "GPU UUID: GPU-????\n", "GPU UUID: gpu\n")):
        box(f"/proc/driver/nvidia/gpus/0000:0{number}/information", text)
    box("/proc/cpuinfo", "processor : 0\nmodel name : A CPU: fast\nmodel name : another\n")
    box("/sys/class/dmi/id/product_uuid", "4C4C4544-0042\n")
    size_gib = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
    named = {} if is_container() else {"hostname": os.uname().nodename}
    assert witnesses(THIS_BOX) == named | {
        "product": digest_of("4c4c45440042"), "machine": digest_of("abc"),
        "cards": ",".join(sorted([digest_of("aa:bb"), digest_of("aa:cc")])), "gpus": digest_of("gpu-1"),
        "hardware": f"A CPU: fast, {os.cpu_count()} CPUs, {size_gib} GiB",
    }  # fmt: skip


def test_a_machine_id_that_systemd_made_for_this_boot_alone_is_none(tmp_path, monkeypatch):
    """Such a one lies on /run, mounted over the file on the disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DIR) as memory:
        if os.stat(memory).st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system for all here")
        places = {"/": str(tmp_path), "/run": memory, "/etc/machine-id": f"{memory}/machine-id"}
        monkeypatch.setattr(box_identity, "Path", lambda path: Path(places.get(path, f"{tmp_path}{path}")))
        Path(memory, "machine-id").write_text("abc\n")
        assert "machine" not in witnesses(THIS_BOX)
        places["/run"] = str(tmp_path)
        assert witnesses(THIS_BOX)["machine"] == digest_of("abc"), "on a disk of its own"
        places["/run"] = places["/"] = memory
        assert witnesses(THIS_BOX)["machine"] == digest_of("abc"), "/run is no file system of its own: a container"
