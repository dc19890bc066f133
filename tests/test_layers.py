"""What may be imported where, seen at run time: import-linter reads the source, this looks at what is really loaded."""

import json
import pkgutil
import subprocess
import sys

from tools import ROOT

import supervisor


def loaded_by(*modules, flags=()):
    """The top-level modules that are loaded once these are imported in a fresh interpreter."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        + "".join(f"import {module}\n" for module in modules)
        + "import json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, *flags, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_whole_daemon_loads_neither_torch_nor_an_environment():
    modules = sorted(each.name for each in pkgutil.walk_packages(supervisor.__path__, "supervisor."))
    assert "supervisor.deciding.decide" in modules
    modules.remove("supervisor.features.recorder.pictures")  # `plot` alone imports it, and matplotlib brings numpy
    modules.remove("supervisor.ctl.top")  # the daemon's `__main__` keeps rich away from structlog
    assert not loaded_by(*modules) & {"torch", "numpy", "envpool", "gymnasium", "safetensors"}


def test_core_and_policy_load_nothing_that_has_to_be_installed():
    modules = [
        each.name
        for package in ("model", "deciding", "reports", "policy")
        for each in pkgutil.walk_packages([str(ROOT / "supervisor" / package)], f"supervisor.{package}.")
    ]
    foreign = loaded_by(*modules, flags=("-I", "-S")) - sys.stdlib_module_names
    assert foreign <= {"__main__", "supervisor", "workers"}


def test_what_foreign_scripts_and_the_shim_import_is_standard_library_alone():
    """-S: no site-packages at all. The shim starts for every attempt, and a script may copy the contract."""
    foreign = loaded_by("workers.contract", "workers.options", "supervisor.shim", flags=("-I", "-S"))
    assert foreign - sys.stdlib_module_names <= {"__main__", "supervisor", "workers"}


def test_what_the_daemon_imports_before_it_is_ready_is_no_web_server_no_calendar_and_no_pretty_printer():
    loaded = loaded_by("supervisor.__main__", "supervisor.shell.daemon")
    assert not loaded & {"uvicorn", "starlette", "h11", "apscheduler", "pygments"}
