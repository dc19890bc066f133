"""Whether what a script saved is whole: real files of the formats that people save in, cut and damaged."""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from leaks import open_files
from safetensors.torch import save_file

from supervisor.adapters.process import whole_files
from supervisor.adapters.process.whole_files import TooMany, defect, file_defect, files_of
from workers.contract import Manifest


def wrong(path: Path, needs: str = "") -> str | None:
    return defect(str(path), files_of(str(path), lambda: None), needs)


def saved(path: Path, size: int = 300) -> Path:
    torch.save({"model": {"w": torch.arange(size)}, "step": 7}, path)
    return path


def cuts(path: Path) -> list[tuple[int, str | None]]:
    """What is said of the file at each shorter length."""
    found = []
    for size in range(path.stat().st_size - 1, -1, -1):
        os.truncate(path, size)
        found.append((size, file_defect(str(path), path.name)))
    return found


def test_a_checkpoint_of_torch_is_torn_wherever_it_is_cut(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pt")
    assert wrong(path) == ""
    found = cuts(path)
    assert [size for size, why in found if not why] == []
    whys = {why for _, why in found}
    assert {"its end is missing", "it is empty", "it has only 2 bytes"} <= whys


def test_safetensors_are_torn_wherever_they_are_cut_and_when_they_have_grown(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.arange(20), "b": torch.ones(3)}, path, {"step": "7"})
    assert wrong(path) == ""
    with path.open("ab") as file:
        file.write(b"x")
    size = path.stat().st_size
    assert wrong(path) == f"it has {size:,} bytes, expected {size - 1:,}"
    assert [size for size, why in cuts(path)[1:] if not why] == []


@pytest.mark.parametrize("name", ["model.safetensors", "a.pt", "a.npz", "a.zip"])
def test_a_file_of_zeros_is_what_a_power_cut_leaves(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(5000))
    assert wrong(path) == "it begins with zeros"


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("head", "it begins with zeros"), ("directory", "it is no whole zip: Bad magic number for central directory"),
        ("hole", "it is no whole zip: Bad magic number for file header"),
    ],
)  # fmt: skip
def test_a_zip_of_the_right_length_with_a_part_that_was_never_written(tmp_path: Path, at: str, why: str) -> None:
    path = saved(tmp_path / "a.pt", 2000)
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x03\x04", 4)
    start = {"head": 0, "directory": directory, "hole": second}[at]
    data[start : start + 30] = bytes(30)
    path.write_bytes(data)
    assert re.fullmatch(why, wrong(path) or "")


@pytest.mark.parametrize(
    ("field", "form", "change", "why"),
    [
        ("start", "<L", 1, "its list of entries is not where it says"),
        ("length", "<L", -1, "it is no whole zip: Bad magic number for central directory"),
        ("place of b", "<L", 1, "it is no whole zip: Bad magic number for file header"),
        ("size of b", "<L", 1, r"its entry 'b' is cut|it is no whole zip: Overlapped entries: 'b' .*"), ("size of b", "<L", 0, ""), ("size of b", "<L", -1, ""),
    ],
)  # fmt: skip
def test_a_zip_whose_list_says_something_else(tmp_path: Path, field: str, form: str, change: int, why: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in "ab":
            file.writestr(name, "x" * 100)
    data = bytearray(path.read_bytes())
    end, entry = data.rindex(b"PK\x05\x06"), data.rindex(b"PK\x01\x02")
    at = {"length": end + 12, "start": end + 16, "size of b": entry + 20, "place of b": entry + 42}[field]
    struct.pack_into(form, data, at, struct.unpack_from(form, data, at)[0] + change)
    path.write_bytes(data)
    assert re.fullmatch(why, wrong(path) or "")


def test_other_zips_with_comments_and_wide_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", "x" * 1000)
        file.comment = b"a comment"
    assert wrong(path) == ""
    np.savez(tmp_path / "a.npz", a=np.zeros(10))
    assert wrong(tmp_path / "a.npz") == ""
    empty = tmp_path / "empty.zip"
    zipfile.ZipFile(empty, "w").close()
    assert wrong(empty) is None, "it does not begin as a zip with entries does"
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    wide = tmp_path / "wide.pt"
    with zipfile.ZipFile(wide, "w") as file:
        for name in "abc":
            file.writestr(name, "x" * 100)
    assert b"PK\x06\x06" in wide.read_bytes(), "with the end of 64 bits"
    assert wrong(wide) == ""
    data = bytearray(wide.read_bytes())
    at = data.index(b"PK\x06\x06")
    data[at : at + 4] = b"????"
    wide.write_bytes(data)
    assert wrong(wide) in {"it is no whole zip: Bad magic number for central directory", "its end is missing"}  # by version
    assert [size for size, why in cuts(wide) if not why] == []


@pytest.mark.parametrize(
    ("header", "why"),
    [
        *((odd, "its header cannot be read") for odd in (
            b"not json", b"[]", b'{"w": {}}', b'{"w": 5}', b'{"w": {"data_offsets": 5}}', b'{"w": {"data_offsets": [0]}}',
            b'{"w": {"data_offsets": [0, "x"]}}', b"[" * 100_000,
        )),
        (b'{"w": {"data_offsets": [0, 8]}}', "it has 39 bytes, expected 47"), (b"{}", ""),
    ],
)  # fmt: skip
def test_headers_of_safetensors(tmp_path: Path, header: bytes, why: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert wrong(path) == why


def test_formats_that_do_not_tell_and_those_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    legacy = tmp_path / "legacy.pt"
    torch.save({"w": torch.arange(9)}, legacy, _use_new_zipfile_serialization=False)
    assert wrong(legacy) is None
    (tmp_path / "weights.h5").write_bytes(b"\x89HDF\r\n")
    assert wrong(tmp_path / "weights.h5") is None
    (tmp_path / "a.json").write_text("[1, 2")
    assert wrong(tmp_path / "a.json") == "it is no JSON"
    save_file({"w": torch.arange(20)}, tmp_path / "m.safetensors")
    monkeypatch.setattr(whole_files, "_MOST_JSON_BYTES", 4)
    assert wrong(tmp_path / "a.json") is None
    assert wrong(tmp_path / "m.safetensors") is None


def trainer(directory: Path, step: int = 500) -> Path:
    """What the Hugging Face Trainer leaves."""
    made = directory / f"checkpoint-{step}"
    made.mkdir(parents=True)
    save_file({"w": torch.arange(20)}, made / "model.safetensors")
    saved(made / "optimizer.pt")
    torch.save({"args": 1}, made / "training_args.bin")
    (made / "vocab.txt").write_text("a b c")
    (made / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return made


def test_a_directory_of_the_trainer(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    assert wrong(made, "trainer_state.json") == ""
    os.truncate(made / "optimizer.pt", 900)
    assert wrong(made) == "optimizer.pt: its end is missing"
    saved(made / "optimizer.pt")
    os.truncate(made / "trainer_state.json", 5)
    assert wrong(made) == "trainer_state.json: it is no JSON"
    (made / "trainer_state.json").unlink()
    assert wrong(made, "trainer_state.json") == "it has no trainer_state.json"
    assert wrong(made) is None, "vocab.txt tells nothing, and it is no directory of the trainer"


def test_shards_of_the_trainer_are_all_there(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    (made / "model.safetensors").rename(made / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "../../../etc/passwd", "d": 7}}
    (made / "model.safetensors.index.json").write_text(json.dumps(index))
    assert wrong(made) == "../../../etc/passwd is missing", "a name of an index is compared, and never opened"
    del index["weight_map"]["c"]
    (made / "model.safetensors.index.json").write_text(json.dumps(index))
    assert wrong(made) == "model-2.safetensors is missing"
    for body in ("[]", '{"weight_map": 7}'):
        (made / "model.safetensors.index.json").write_text(body)
        assert wrong(made) == ""
    (made / "model-1.safetensors").unlink()
    assert wrong(made) is None, "its own arguments are no weights"


def test_any_other_directory_is_whole_if_all_of_it_is_known_and_whole(tmp_path: Path) -> None:
    made = tmp_path / "step_7"
    (made / "rank0").mkdir(parents=True)
    saved(made / "rank0" / "optim.pt")
    saved(made / "model.pt")
    assert wrong(made) == ""
    (made / "DONE").touch()
    assert wrong(made) is None, "an empty file is a mark, and no defect"
    os.truncate(made / "rank0" / "optim.pt", 100)
    assert wrong(made) == "rank0/optim.pt: its end is missing"


def test_what_the_client_saved_by_itself_is_told_by_its_manifest(tmp_path: Path) -> None:
    made = tmp_path / f"ckpt-7.{'ab' * 16}"
    (made / "below").mkdir(parents=True)
    (made / "below" / "state").write_text("seven")
    files = {"below/state": (5, "0" * 64)}
    manifest = Manifest("mine", "ab" * 16, 1, "b" * 32, 7, 1.8e9, {}, files)
    (made / "manifest.json").write_text(manifest.to_json())
    assert wrong(made) == "", "its format is nobody's, but its manifest knows its size"
    (made / "below" / "state").write_text("sev")
    assert wrong(made) == "below/state has 3 bytes, and its manifest says 5"
    (made / "below" / "state").unlink()
    assert wrong(made) == "it has no below/state"
    (made / "manifest.json").write_text("{}")
    assert "not a checkpoint manifest" in wrong(made)
    assert wrong(made.rename(tmp_path / "step_7")) == "", "somebody else's manifest.json is JSON"


def test_links_are_left_out_and_too_many_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "c"
    made.mkdir()
    saved(made / "model.pt")
    (made / "loop").symlink_to(made)
    (made / "out").symlink_to("/etc/passwd")
    os.mkfifo(made / "pipe")
    assert [each.path for each in files_of(str(made), lambda: None)] == ["model.pt"]
    monkeypatch.setattr(whole_files, "_MOST_FILES", 0)
    with pytest.raises(TooMany, match=r"^it has more than 0 files$"):
        files_of(str(made), lambda: None)
    monkeypatch.setattr(whole_files, "_MOST_FILES", 1)
    assert len(files_of(str(made), lambda: None)) == 1


# --- each limit at its edge, each clause --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body", "why"),
    [
        ("a.txt", b"", "it is empty"), ("a.txt", b"PK", None), ("a.txt", bytes(100), None),
        ("a.json", b"", "it is empty"), ("a.json", b'{"a": 1}', ""),
        *(("a.json", body, "it is no JSON") for body in (b"\xff", b"[" * 100_000)),
        ("a.pt", bytes(7) + b"x", None), ("a.pt", bytes(8) + b"x", "it begins with zeros"), ("a.pt", b"\0", "it begins with zeros"),
        ("a.pt", b"XXXXXXXX", None), ("a.pt", b"P", "it has only 1 bytes"), ("a.pt", b"PK\x03", "it has only 3 bytes"),
        *((name, b"PK\x03\x04", "its end is missing") for name in ("a.pt", "a.dat")),
        ("m.safetensors", b"1234567", "it has only 7 bytes"), ("m.safetensors", b"\x02" + bytes(7) + b"{}", ""),
        ("m.safetensors", bytes(7) + b"\x01", f"it has 8 bytes, and its header alone {1 << 56:,}"),
        ("m.safetensors", b"\x01" + bytes(7), "it has 8 bytes, and its header alone 1"), ("m.safetensors", b"\x03" + bytes(7) + b"{}", "it has 10 bytes, and its header alone 3"),
        ("a.json", b'{"step": 1}\n{"step": 2}\n', ""), ("a.json", b'{"step": 1}\n{"st', "it is no JSON"),
        *((f"a.{ending}", bytes(8), "it begins with zeros") for ending in ("pt", "pth", "zip", "npz", "safetensors")),
        *((f"a.{ending}", bytes(9000), None) for ending in ("ckpt", "bin")),  # a raw array, or one with holes
    ],
)  # fmt: skip
def test_what_is_said_of_a_file_by_its_first_bytes(tmp_path: Path, name: str, body: bytes, why: str | None) -> None:
    (tmp_path / name).write_bytes(body)
    before = open_files()
    assert file_defect(str(tmp_path / name), name) == why
    assert open_files() <= before


def test_the_furthest_tensor_tells_how_long_the_file_is(tmp_path: Path) -> None:
    header = (
        b'{"a": {"data_offsets": [4, 1500]}, "b": {"data_offsets": [0, 4]}, "__metadata__": {"data_offsets": [0, 9000]}}'
    )
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(1500))
    assert wrong(path) == ""
    size = path.stat().st_size
    os.truncate(path, size - 1)
    assert wrong(path) == f"it has {size - 1:,} bytes, expected {size:,}"


@pytest.mark.parametrize(
    ("weights", "why"),
    [("model.safetensors", ""), ("pytorch_model.bin", ""), ("training_args.bin", None), ("below/model.bin", None)],
)
def test_weights_beside_the_trainers_state(tmp_path: Path, weights: str, why: str | None) -> None:
    (tmp_path / weights).parent.mkdir(exist_ok=True)
    (save_file({"w": torch.arange(9)}, tmp_path / weights) if "safe" in weights else saved(tmp_path / weights))
    (tmp_path / "trainer_state.json").write_text("{}")
    assert wrong(tmp_path) == why
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "z.bin", "b": "b.bin"}}')
    assert wrong(tmp_path) == "b.bin is missing"
