"""A configuration file in a directory of its own, loaded with nothing of the tester's environment."""

from __future__ import annotations

import re
from pathlib import Path

from tools import MEMORY_DIR

from supervisor import config
from supervisor.model.settings import ProgramSpec, Settings


def plain_id(text: str) -> str:
    """An id for pytest. It escapes other characters anew whenever a process collects the tests again."""
    return re.sub(r"[^ -\[\]-~]", "/", text)


class Place:
    """Where one test's file, state directory and runtime directory are."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "extralife.toml"
        self.environ = {
            "HOME": str(directory), "PATH": "/usr/bin:/bin", "EXTRALIFE_STATE_DIR": str(directory / "state"),
            "EXTRALIFE_RUNTIME_DIR": f"{MEMORY_DIR}/xl-test",
        }  # fmt: skip

    def load(
        self, text: str, environ: dict[str, str] | None = None, *, look: bool = True, starting: bool = False, **flags: object
    ) -> config.Loaded:
        self.file.write_text(text)
        return config.load(str(self.file), {**self.environ, **(environ or {})}, flags, look=look, starting=starting)

    def settings(self, text: str, environ: dict[str, str] | None = None, **flags: object) -> Settings:
        return self.load(text, environ, **flags).settings

    def program(self, name: str, text: str, environ: dict[str, str] | None = None) -> ProgramSpec:
        found = self.settings(text, environ).program(name)
        assert found is not None
        return found

    def errors(self, text: str, environ: dict[str, str] | None = None, **flags: object) -> list[str]:
        """Every error of a text, with the file's path as FILE."""
        try:
            self.load(text, environ, **flags)
        except config.ConfigError as error:
            return [sentence.replace(str(self.file), "FILE") for sentence in error.errors]
        return []


def flags_of(spec: ProgramSpec) -> dict[str, str]:
    """The flags of a built-in program's command line."""
    words = spec.argv[4:]
    return dict(zip(words[::2], words[1::2], strict=True))
