"""A box for each test, and the environments of the frameworks, made at first use in bench/.envs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from box import Box
from environments import NotInstallable, environment

FRAMEWORKS = (
    "stable-baselines3>=2.9,<3", "lightning>=2.6,<3", "transformers>=5,<6", "accelerate>=1.15", "tyro>=1", "tensorboard>=2.20",
)  # fmt: skip
OF_CLEANRL = (
    "gymnasium==0.29.1",
    "numpy<2",
    "tyro>=1",
    "tensorboard>=2.20",
)  # as its pyproject.toml has it, less what is for a GPU


def environment_of(name: str, *requirements: str) -> Path:
    """Its bin directory."""
    try:
        return environment(name, *requirements, own=True)
    except NotInstallable as error:
        pytest.skip(f"the frameworks cannot be installed: {error}")


@pytest.fixture(scope="session")
def place() -> Path:
    """The bin directory of the environment with all frameworks."""
    return environment_of("recipes", *FRAMEWORKS)


@pytest.fixture(scope="session")
def place_of_cleanrl() -> Path:
    """CleanRL has an older Gymnasium, without which it prints no returns."""
    return environment_of("cleanrl", *OF_CLEANRL)


@pytest.fixture(scope="session")
def cleanrl() -> Path:
    """CleanRL's ppo.py, as it is."""
    checkout = os.environ.get("EXTRALIFE_CLEANRL")
    if not checkout:
        pytest.skip("EXTRALIFE_CLEANRL names no checkout of CleanRL")
    return Path(checkout, "cleanrl", "ppo.py")


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    try:
        yield made
    finally:
        made.close()
