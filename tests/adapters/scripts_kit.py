"""A state directory with its backups, and scripts whose checkpoints lie in directories of their own."""

from test_own_checkpoints import spec

from supervisor.adapters.copies import store
from supervisor.adapters.copies.store import NothingToBackUp, Task
from supervisor.adapters.process.own_checkpoints import place_of


class ScriptsBox:
    """Knows where each script that was made in it keeps its checkpoints."""

    def __init__(self, directory):
        self.directory, self.root = directory, directory / "state" / "backups"
        self.places = {}

    def script(self, name, glob="*.pt", step=r"(\d+)"):
        work = self.directory / name
        work.mkdir()
        place = place_of(spec(work, glob, step), "/nowhere")
        assert place is not None
        self.places[name] = place
        return work

    def run_dirs(self, *names):
        return {name: self.directory / "state" / "programs" / name for name in names or self.places}

    def make(self, *names, name="b1", wall_s=1.5e9, task=None, every=False):
        return store.make(
            self.root, name, self.run_dirs(*names), label="Before Friday", cause="operator", wall_s=wall_s,
            task=task or Task(), every=every, places=self.places,
        )  # fmt: skip

    def back(self, *names, name="b1", kept="kept"):
        info = store.find(self.root, name)
        names = names or tuple(info.steps)

        def keep():
            try:
                return self.make(*names, name=kept, every=True)
            except NothingToBackUp:
                return None

        return store.restore(info, self.run_dirs(*names), keep, Task(), self.places)
