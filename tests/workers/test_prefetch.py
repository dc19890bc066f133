"""What a start reads from the disk is read ahead; where nothing can be, nothing happens."""

import os
import threading

from leaks import open_files

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


def test_a_first_start_has_no_checkpoint_to_read(tmp_path):
    prefetch.begin(tmp_path / "nothing here").join(30)
    prefetch.begin(None).join(30)
    assert list(prefetch.files(None)) == list(prefetch.files(tmp_path / "nothing here"))


def test_a_start_that_may_have_no_more_threads_goes_on(monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not prefetch.begin(None).is_alive()


def test_large_libraries_alone_the_largest_first(tmp_path, monkeypatch):
    lib = tmp_path / "some_package" / "lib"
    lib.mkdir(parents=True)
    (lib.parent / "__init__.py").touch()
    for name, size in (("small.so", (1 << 20) - 1), ("just.so.1", 1 << 20), ("large.so", 3 << 20), ("large.txt", 3 << 20)):
        with (lib / name).open("wb") as file:
            file.truncate(size)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(prefetch, "_LIBRARIES", {"no_such_package": "*", "some_package": "lib/*.so*"})
    (tmp_path / "run" / "checkpoints" / "ckpt-1.aa" / "shards").mkdir(parents=True)
    saved = tmp_path / "run" / "checkpoints" / "ckpt-1.aa" / "tensors"
    saved.write_bytes(b"x")
    wanted = [lib / "large.so", lib / "just.so.1", saved]
    assert list(prefetch.files(tmp_path / "run")) == wanted

    advised, advise = [], os.posix_fadvise

    def record(descriptor, *how):
        advised.append((os.readlink(f"/proc/self/fd/{descriptor}"), *how))
        advise(descriptor, *how)

    monkeypatch.setattr(os, "posix_fadvise", record)
    before = open_files()
    thread = prefetch.begin(tmp_path / "run")
    thread.join(30)
    assert (thread.name, thread.daemon) == ("prefetch", True)
    assert advised == [(str(path), 0, 0, os.POSIX_FADV_WILLNEED) for path in wanted]
    assert open_files() <= before
