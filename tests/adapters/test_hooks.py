"""The output of a command that fails."""

from __future__ import annotations

import sys

from supervisor.adapters import hooks


def test_no_secret_that_a_command_was_given_is_in_its_output(monkeypatch):
    monkeypatch.setenv("VAST_API_KEY", "k3y-of-the-environment")
    code = "import os, sys; print(sys.argv[1:], os.environ['VAST_API_KEY'], os.environ['HOME']); sys.exit(1)"
    argv = [sys.executable, "-c", code, "--api-key", "k3y-of-an-option", "--token=t0ken", "7777"]
    home = "/home/ada"
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("PWD", home)
    said = f"['--api-key', '***', '--token=***', '7777'] *** {home}"
    assert hooks.attempt(argv, "", 30.0) == (f"it ended with status 1: {said}", f"{said}\n")
