"""What a start reads from the disk is read ahead; where nothing can be, nothing happens."""

import os
import threading

from workers import prefetch


def test_the_large_libraries_come_first_then_the_newest_checkpoint(tmp_path):
    for age, name in enumerate(("ckpt-200.bb", "ckpt-300.cc", "ckpt-100.aa", "ckpt-400.dd.tmp")):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "tensors").write_bytes(b"x")
        os.utime(tmp_path / "checkpoints" / name, (1_000 - age, 1_000 - age))
    os.utime(tmp_path / "checkpoints" / "ckpt-100.aa", (2_000, 2_000))
    found = list(prefetch.files(tmp_path))
    libraries, rest = found[:-1], found[-1]
    assert {"libtorch_cpu.so", "libtorch_cuda.so"} & {libraries[0].name}, "the largest one of this build of torch"
    assert any(path.name == "atari_envpool.so" for path in libraries)
    assert all(path.stat().st_size >= 1 << 20 for path in libraries)
    assert rest == tmp_path / "checkpoints" / "ckpt-100.aa" / "tensors"


def test_a_start_that_may_have_no_more_threads_goes_on(monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not prefetch.begin(None).is_alive()
