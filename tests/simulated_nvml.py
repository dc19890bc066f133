"""`nvml/nvml.c`, compiled: NVML without a GPU, played by a scenario file (its keys stand in the source).

nvml = SimulatedNvml(tmp_path); nvml.plays("gpus 1", "set 0 free 1000000000")
env |= nvml.environment()          # for a process under test: the real pynvml finds it by LD_LIBRARY_PATH
nvml.load()                        # or for this one
"""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
NAME = "libnvidia-ml.so.1"
MB = 2**20


@functools.cache
def _library():
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (apt-get install gcc libc6-dev)")
    keep = tempfile.TemporaryDirectory(prefix="xl-nvml-")
    library = Path(keep.name) / NAME
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{NAME}", "-o", library, SOURCE], check=True)
    return library, keep  # the directory goes with this process


class SimulatedNvml:
    """A box's GPUs, as told line by line."""

    def __init__(self, directory):
        self.scenario = directory / "nvml-scenario"
        self.plays("gpus 0")

    def plays(self, *lines):
        """From now on these lines; old or new for every reader."""
        aside = self.scenario.with_suffix(".tmp")
        aside.write_text("".join(f"{line}\n" for line in lines))
        aside.rename(self.scenario)

    def environment(self):
        library, _ = _library()
        return {"LD_LIBRARY_PATH": str(library.parent), "NVML_SCENARIO": str(self.scenario)}

    def load(self):
        """Into this process: a library of that name that is loaded already is what pynvml gets."""
        library, _ = _library()
        ctypes.CDLL(str(library))
        # os.environ alone is Python's; the library reads C's, which it is copied to.
        os.environ["NVML_SCENARIO"] = str(self.scenario)
