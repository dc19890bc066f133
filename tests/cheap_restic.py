"""A repository of restic whose password opens it at once: the same master key, behind scrypt with N = 2.

restic measures the machine and has scrypt take a tenth of a second or more, for every command that opens the repository: most of
what a test of it costs. What is written and read with the master key stays as it is. The format of a key is in restic's design
document: AES-256-CTR, then Poly1305-AES, both with keys out of scrypt.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

_CHEAP = 2


def section(directory: Path, every_s: float = 2.0) -> str:
    """[offsite] of a repository below this directory."""
    password = directory / "password"
    if not password.exists():
        password.write_text("correct horse\n")
        password.chmod(0o600)
    return (
        f'[offsite]\nrepository = "{directory}/repo"\npassword_file = "{password}"\nevery_s = {every_s}\n'
        f'late_s = 600.0\nforget = "off"\ncheck = "off"'
    )


def make_cheap(repository: Path, password: str) -> None:
    """Of its only key. Without openssl the repository stays as it is, and everything takes longer."""
    if shutil.which("openssl") is None:
        return
    (file,) = (repository / "keys").iterdir()
    key = json.loads(file.read_text())
    sealed = base64.b64decode(key["data"])
    nonce, hidden, tag = sealed[:16], sealed[16:-16], sealed[-16:]
    encrypts, *signs = _keys(key, password)
    assert _mac(*signs, nonce, hidden) == tag, "restic's format of a key has changed, or the password is wrong"
    master = _aes("aes-256-ctr", encrypts, hidden, "-iv", nonce.hex())
    key["N"] = _CHEAP
    encrypts, *signs = _keys(key, password)
    hidden = _aes("aes-256-ctr", encrypts, master, "-iv", nonce.hex())
    key["data"] = base64.b64encode(nonce + hidden + _mac(*signs, nonce, hidden)).decode()
    said = json.dumps(key).encode()
    (file.parent / hashlib.sha256(said).hexdigest()).write_bytes(said)  # restic names each file by its content
    file.unlink()


def _keys(key: dict[str, object], password: str) -> tuple[bytes, bytes, bytes]:
    """For AES-256, and the two of Poly1305-AES."""
    salt = base64.b64decode(str(key["salt"]))
    made = hashlib.scrypt(password.encode(), salt=salt, n=key["N"], r=key["r"], p=key["p"], maxmem=1 << 30, dklen=64)
    return made[:32], made[32:48], made[48:]


def _mac(k: bytes, r: bytes, nonce: bytes, message: bytes) -> bytes:
    clamped, sum_ = int.from_bytes(r, "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, 0
    for at in range(0, len(message), 16):
        sum_ = (sum_ + int.from_bytes(message[at : at + 16] + b"\1", "little")) * clamped % ((1 << 130) - 5)
    return (sum_ + int.from_bytes(_aes("aes-128-ecb", k, nonce), "little") & ((1 << 128) - 1)).to_bytes(16, "little")


def _aes(cipher: str, key: bytes, data: bytes, *more: str) -> bytes:
    command = ["openssl", "enc", f"-{cipher}", "-K", key.hex(), "-nopad", *more]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout
