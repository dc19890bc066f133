"""Containers for the tests of this directory; each ends with its test. The volume with an installed program is made once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from containerbox import IMAGE, ROOT, VOLUME, Box, limits, podman, unfit


def pytest_collection_modifyitems(items):
    here = str(__file__).rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A volume onto which a container has installed the program."""
    if why := unfit():
        pytest.skip(why)
    box = Box(tmp_path_factory.mktemp("installed"))
    try:
        box.run()
        box.trains()
        assert box.stop(10) < 10
    finally:
        box.close()
    return box.home / "releases"


@pytest.fixture
def box(installed, tmp_path):
    made = Box(tmp_path / "volume")
    shutil.copytree(installed, made.home / "releases", symlinks=True)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """The image of the Containerfile on a minimal Debian."""
    if why := unfit() or ("" if shutil.which("mmdebstrap") else "mmdebstrap is not installed (apt-get install mmdebstrap)"):
        pytest.skip(why)
    base = tmp_path_factory.mktemp("image") / "base.tar"
    packages = "--include=python3,python3-venv,ca-certificates"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", packages, "bookworm", base], check=True, timeout=600)
    podman("import", "--quiet", str(base), f"{IMAGE}-base")
    containerfile = f"{ROOT}/deploy/container/Containerfile"
    podman(
        "build", "--network=host", *limits(), f"--build-arg=BASE={IMAGE}-base", "--file", containerfile, "--tag", IMAGE, str(ROOT),
        timeout_s=600,
    )  # fmt: skip
    yield IMAGE
    podman("rmi", "--force", IMAGE, f"{IMAGE}-base", check=False)


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """The address of a repository with this checkout's files."""
    made = tmp_path_factory.mktemp("repository")
    listed = "git ls-files --cached --others --exclude-standard -z supervisor workers deploy units docs pyproject.toml '*.md' LICENSE 'tests/*.lock'"
    subprocess.run(["bash", "-c", f"{listed} | xargs -0 cp --parents -t {made}"], cwd=ROOT, check=True)
    for words in ("init -q", "add -A", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", *words.split()], cwd=made, check=True)
    return f"file://{made}"


@pytest.fixture
def volume():
    """extralife's directory on a volume of podman."""
    podman("volume", "create", VOLUME)
    home = Path(podman("volume", "inspect", "--format", "{{.Mountpoint}}", VOLUME).stdout.strip()) / "extralife"
    home.mkdir()
    try:
        yield home
    finally:
        podman("volume", "rm", "--force", VOLUME, check=False)
