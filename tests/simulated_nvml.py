"""`nvml/nvml.c`, compiled: NVML without a GPU, played by a scenario file (its keys stand in the source).

nvml = SimulatedNvml(tmp_path); nvml.plays("gpus 1", "set 0 free 1000000000")
env |= nvml.environment()          # for a process under test: the real pynvml finds it by LD_LIBRARY_PATH
nvml.load()                        # or for this one
"""

import ctypes
import os
from pathlib import Path

from tools import compiled

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
NAME = "libnvidia-ml.so.1"
MB = 2**20


class SimulatedNvml:
    """A box's GPUs, as told line by line."""

    def __init__(self, directory):
        # Compiled here, not at first use: without a compiler the test is skipped before it has anything to clean up.
        self.library, _ = compiled(SOURCE, NAME, f"-Wl,-soname,{NAME}")
        self.scenario = directory / "nvml-scenario"
        self.link = directory / "nvml-library" / NAME
        self.link.parent.mkdir()
        self.installed(there=True)
        self.plays("gpus 0")

    def plays(self, *lines):
        """From now on these lines; old or new for every reader."""
        aside = self.scenario.with_suffix(".tmp")
        aside.write_text("".join(f"{line}\n" for line in lines))
        aside.rename(self.scenario)

    def installed(self, there):
        """Whether a process under test finds the library."""
        self.link.unlink(missing_ok=True)
        if there:
            self.link.symlink_to(self.library)

    def environment(self):
        return {"LD_LIBRARY_PATH": str(self.link.parent), "NVML_SCENARIO": str(self.scenario)}

    def load(self):
        """Into this process: a library of that name that is loaded already is what pynvml gets."""
        ctypes.CDLL(str(self.library))
        # os.environ alone is Python's; the library reads C's, which it is copied to.
        os.environ["NVML_SCENARIO"] = str(self.scenario)
