"""What tells one box from another, read from this machine and from a directory."""

from pathlib import Path

from supervisor.adapters.boot import BootFiles
from supervisor.adapters.box_identity import witnesses
from supervisor.policy.box_identity import WITNESSES

THIS_BOX = BootFiles()


def given(tmp_path: Path, **files: str) -> dict[str, str]:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return witnesses(BootFiles.of({"EXTRALIFE_BOOT_FILES": str(tmp_path)}))


def test_this_machine_says_the_same_twice():
    found = witnesses(THIS_BOX)
    assert found == witnesses(THIS_BOX)
    assert found["hostname"]
    assert "GiB" in found["hardware"]
    assert set(found) <= set(WITNESSES)
    assert all(found.values())


def test_ids_are_digests():
    machine = Path("/etc/machine-id")
    text = machine.read_text().strip() if machine.exists() else "none"
    assert text not in str(witnesses(THIS_BOX))


def test_a_directory_in_place_of_the_system(tmp_path):
    assert given(tmp_path) == {}, "nothing there: nothing known, and not the system's own"
    found = given(
        tmp_path, machine_id="a" * 32, hostname="alpha\n", product_uuid="4C4C4544-0042", cards="aa:bb\nAA:CC\n", gpus="GPU-1"
    )
    assert found["hostname"] == "alpha"
    assert len(found["cards"].split(",")) == 2
    assert found == given(tmp_path, product_uuid="4c4c45440042", cards="aa:cc\naa:bb\n"), "however it is written"


def test_a_uuid_that_thousands_of_boards_share_is_none(tmp_path):
    for text in ("", "0" * 32, "ffffffff-ffff-ffff-ffff-ffffffffffff", "03000200-0400-0500-0006-000700080009"):
        assert "product" not in given(tmp_path, product_uuid=text)


def test_garbage_raises_nothing(tmp_path):
    (tmp_path / "machine_id").mkdir()
    (tmp_path / "hostname").write_bytes(b"\xff\x00name")
    assert "machine" not in given(tmp_path)
