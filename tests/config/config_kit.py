"""A configuration file in a directory of its own, loaded with nothing of the tester's environment."""

import re

from tools import MEMORY_DIR

from supervisor import config


def plain_id(text):
    """An id for pytest. It escapes other characters anew whenever a process collects the tests again."""
    return re.sub(r"[^ -\[\]-~]", "/", text)


class Place:
    """Where one test's file, state directory and runtime directory are."""

    def __init__(self, directory):
        self.directory = directory
        self.file = directory / "extralife.toml"
        self.environ = {
            "HOME": str(directory), "PATH": "/usr/bin:/bin", "EXTRALIFE_STATE_DIR": str(directory / "state"),
            "EXTRALIFE_RUNTIME_DIR": f"{MEMORY_DIR}/xl-test",
        }  # fmt: skip

    def load(self, text, environ=None, *, look=True, starting=False, **flags):
        self.file.write_text(text)
        return config.load(str(self.file), {**self.environ, **(environ or {})}, flags, look=look, starting=starting)

    def settings(self, text, environ=None, **flags):
        return self.load(text, environ, **flags).settings

    def program(self, name, text, environ=None):
        found = self.settings(text, environ).program(name)
        assert found is not None
        return found

    def errors(self, text, environ=None, **flags):
        """Every error of a text, with the file's path as FILE."""
        try:
            self.load(text, environ, **flags)
        except config.ConfigError as error:
            return [sentence.replace(str(self.file), "FILE") for sentence in error.errors]
        return []


def flags_of(spec):
    """The flags of a built-in program's command line."""
    words = spec.argv[4:]
    return dict(zip(words[::2], words[1::2], strict=True))
