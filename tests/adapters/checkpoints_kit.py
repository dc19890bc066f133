"""A whole checkpoint on disk, as a worker commits it. It imports nothing of the tests: scripts in tests use it too."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from workers.contract import Manifest, checkpoint_name

TOKEN, OTHER = "1" * 32, "2" * 32


def commit(run_dir: Path, step: int, token: str = TOKEN, created_wall_s: float = 1e9, size: int = 1000) -> Path:
    path = run_dir / "checkpoints" / checkpoint_name(step, token)
    path.mkdir(parents=True)
    contents = {"tensors.safetensors": random.Random(step).randbytes(size), "state.json": b'{"step": 1}'}
    for name, data in contents.items():
        (path / name).write_bytes(data)
    manifest = Manifest(
        program="Pong", token=token, attempt=1, boot_id="b" * 32, env_steps=step, created_wall_s=created_wall_s,
        identity={"game": "Pong"}, mean_return=1.0,
        files={name: (len(data), hashlib.blake2b(data, digest_size=32).hexdigest()) for name, data in contents.items()},
    )  # fmt: skip
    (path / "manifest.json").write_text(manifest.to_json())
    return path
