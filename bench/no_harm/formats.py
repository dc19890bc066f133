"""What a checkpoint consists of, by format: files by name, or one file under the name ``. Read and written as a whole."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import re
import struct
import sys
import zipfile

SUFFIX = {
    "zip": ".zip", "torch": ".pt", "safetensors": ".safetensors", "json": ".json", "text": ".txt", "binary": ".ckpt",
    "numpy": ".npz", "pickle": ".pkl", "gzip": ".json.gz",
}  # fmt: skip
FOLDERS = ("manifest", "trainer", "sharded", "distributed")  # formats that are a directory; the last file is the newest
_EXPECTED = re.compile(rb"run=(\S+) step=(\d+)")
_SIZE = 120_000


def make(fmt: str, run: str, step: int) -> dict[str, bytes]:
    """The files of a checkpoint in the order in which they are written. Each run and step has content of its own."""
    mark = f"run={run} step={step}\n".encode()
    fill = hashlib.blake2b(mark).digest() * (_SIZE // 64)
    state = {"step": step, "run": run, "weights": fill.hex()[:_SIZE]}
    match fmt:
        case "zip":
            return {"": _zipped({"archive/data.pkl": mark, **{f"archive/data/{n}": fill[n::8] for n in range(8)}})}
        case "torch":
            import torch

            out = io.BytesIO()
            torch.save({"step": step, "run": run, "weights": torch.full((_SIZE // 4,), float(step))}, out)
            return {"": out.getvalue()}
        case "safetensors":
            return {"": _tensors(run, step, fill)}
        case "json":
            return {"": json.dumps(state).encode()}
        case "text":
            return {"": mark + fill.hex().encode()}
        case "binary":
            return {"": struct.pack("<q16s", step, run.encode()) + fill}
        case "numpy":
            import numpy as np

            out = io.BytesIO()
            np.savez(out, step=step, run=run, weights=np.frombuffer(fill, np.uint8))
            return {"": out.getvalue()}
        case "pickle":
            return {"": pickle.dumps(state)}
        case "gzip":
            return {"": gzip.compress(json.dumps(state | {"weights": os.urandom(_SIZE).hex()}).encode(), 1, mtime=0)}
        case "manifest":
            files = {"weights.bin": mark + fill, "optimizer.bin": mark + fill[: _SIZE // 2]}
            sizes = {name: len(data) for name, data in files.items()}
            return {**files, "manifest.json": json.dumps({"step": step, "run": run, "files": sizes}).encode()}
        case "trainer":
            files = {"model.safetensors": _tensors(run, step, fill), "optimizer.pt": _zipped({"archive/data.pkl": fill})}
            return {**files, "trainer_state.json": json.dumps({"global_step": step, "run": run}).encode()}
        case "sharded":
            shards = {f"model-{n:05}-of-00004.bin": mark + fill[n::4] for n in range(1, 5)}
            return {**shards, "model.index.json": json.dumps({"step": step, "run": run, "shards": [*shards]}).encode()}
        case "distributed":
            ranks = {f"__{n}_0.distcp": mark + fill[n::2] for n in range(2)}
            return {**ranks, ".metadata": pickle.dumps({"step": step, "run": run, "ranks": [*ranks]})}
    raise ValueError(fmt)


def _zipped(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _tensors(run: str, step: int, fill: bytes) -> bytes:
    head = json.dumps({"__metadata__": {"run": run, "step": str(step)}, "w": {
        "dtype": "U8", "shape": [len(fill)], "data_offsets": [0, len(fill)],
    }}).encode()  # fmt: skip
    return struct.pack("<Q", len(head)) + head + fill


def read(fmt: str, files: dict[str, bytes]) -> int:
    """The step of a whole checkpoint. As with a real library, any exception means that it cannot be loaded."""
    data = files.get("", b"")
    match fmt:
        case "zip":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if archive.testzip() is not None:
                    raise ValueError("bad CRC-32")
                return _marked(archive.read("archive/data.pkl"))
        case "torch":
            import torch

            return int(torch.load(io.BytesIO(data))["step"])
        case "safetensors":
            return _of_tensors(data)
        case "json":
            return int(json.loads(data)["step"])
        case "gzip":
            return int(json.loads(gzip.decompress(data))["step"])
        case "text":
            if len(data) < 2 * (_SIZE // 64 * 64):
                raise EOFError("Ran out of input")
            return _marked(data)
        case "binary":
            if len(data) != 24 + _SIZE // 64 * 64:
                raise EOFError("Ran out of input")
            return int(struct.unpack("<q", data[:8])[0])
        case "numpy":
            import numpy as np

            with np.load(io.BytesIO(data)) as arrays:
                arrays["weights"]
                return int(arrays["step"])
        case "pickle":
            return int(pickle.loads(data)["step"])
        case "manifest":
            about = json.loads(files["manifest.json"])
            if {name: len(files[name]) for name in about["files"]} != about["files"]:
                raise ValueError("sizes do not match the manifest")
            return _same(about["step"], *(files[name] for name in about["files"]))
        case "trainer":
            with zipfile.ZipFile(io.BytesIO(files["optimizer.pt"])) as archive:
                archive.read("archive/data.pkl")
            step = int(json.loads(files["trainer_state.json"])["global_step"])
            if _of_tensors(files["model.safetensors"]) != step:
                raise ValueError("the model is of another step")
            return step
        case "sharded":
            about = json.loads(files["model.index.json"])
            return _same(about["step"], *(files[name] for name in about["shards"]))
        case "distributed":
            about = pickle.loads(files[".metadata"])
            return _same(about["step"], *(files[name] for name in about["ranks"]))
    raise ValueError(fmt)


def _marked(data: bytes) -> int:
    found = _EXPECTED.match(data)
    if found is None:
        raise EOFError("Ran out of input")
    return int(found[2])


def _same(step: int, *parts: bytes) -> int:
    if any(_marked(part) != step for part in parts):
        raise ValueError("the parts are of different steps")
    return step


def _of_tensors(data: bytes) -> int:
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    if len(data) != 8 + size + head["w"]["data_offsets"][1]:
        raise ValueError("Error while deserializing header: incomplete metadata, file not fully covered")
    return int(head["__metadata__"]["step"])


def digest(files: dict[str, bytes]) -> str:
    made = hashlib.blake2b(digest_size=8)
    for name in sorted(files):
        made.update(b"%d %s %d\n" % (len(name), name.encode(), len(files[name])))
        made.update(files[name])
    return made.hexdigest()


def load(path: str) -> dict[str, bytes]:
    """The files at a path; OSError if there is nothing."""
    names = sorted(os.listdir(path)) if os.path.isdir(path) else [""]
    found = {}
    for name in names:
        with open(os.path.join(path, name) if name else path, "rb") as file:
            found[name] = file.read()
    return found


if __name__ == "__main__":  # a `checkpoint_check`
    read(sys.argv[1], load(sys.argv[2]))
