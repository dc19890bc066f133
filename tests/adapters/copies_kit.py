"""A box without a daemon: a state directory whose programs have checkpoints, and the thread that copies them."""

from pathlib import Path

import removable
from checkpoints_kit import commit
from fakes import FakeClock
from test_own_checkpoints import spec
from tools import PATIENCE

from supervisor.adapters.copies import store
from supervisor.adapters.copies.store import NothingToBackUp
from supervisor.adapters.copies.thread import Task
from supervisor.adapters.process.own_checkpoints import place_of
from supervisor.model.settings import Paths, Settings
from supervisor.shell.inbox import Inbox

NOW_S, WALL_S = 77.0, 1_800_000_000.0
WAIT_S = 60.0 * PATIENCE
(LeaseFound,) = removable.of("offsite.messages", "LeaseFound")


class Box:
    """A test gives it the `thread`, and with `script` knows where scripts keep checkpoints of their own."""

    def __init__(self, directory, **steps):
        self.directory = directory
        self.paths = Paths(*(str(directory / name) for name in ("state", "run", "extralife.toml")))
        self.state, self.root = Path(self.paths.state_dir), Path(self.paths.backups)
        self.state.mkdir(mode=0o700, parents=True)
        self.settings, self.inbox, self.clock = Settings(self.paths), Inbox(), FakeClock(NOW_S, WALL_S)
        self.places = {}
        for program, step in steps.items():
            self.commit(program, step)

    def run_dir(self, program):
        return Path(self.paths.run_dir(program))

    def run_dirs(self, *names):
        return {name: self.run_dir(name) for name in names or self.places}

    def commit(self, program, *steps, **more):
        for step in steps:
            commit(self.run_dir(program), step, **more)
        return self.run_dir(program)

    def script(self, name, glob="*.pt", step=r"(\d+)"):
        work = self.directory / name
        work.mkdir()
        place = place_of(spec(work, glob, step), "/nowhere")
        assert place is not None
        self.places[name] = place
        return work

    # --- its thread --------------------------------------------------------------------------------------------------------

    def does(self, command):
        """All that the thread posts, up to the outcome."""
        self.thread.perform(command)
        posted = []
        while not posted or isinstance(posted[-1], LeaseFound):
            posted.append(self.inbox.take(WAIT_S))
        return posted

    # --- its backups, without a thread --------------------------------------------------------------------------------------

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
