"""Features may be removed (docs/architecture.md): what tests of the rest need of them is there, or left out."""

from importlib import import_module

import pytest

from supervisor import discovery

PRESENT = frozenset(discovery.names())


def of(module, *names):
    """These classes of a feature's module. If it is removed, classes without any instance."""
    if module.partition(".")[0] in PRESENT:
        found = import_module(f"supervisor.features.{module}")
        return [getattr(found, name) for name in names]
    return [type(name, (), {}) for name in names]


def alerts(**rules):
    """With these settings facts raise alerts. If the feature is removed, none."""
    (section,) = of("alerts.settings", "AlertSettings")
    return {"alerts": section(**rules)} if "alerts" in PRESENT else {}


def need(feature):
    """Skip the test, or the file of tests, without this feature."""
    if feature not in PRESENT:
        pytest.skip(f"{feature} is removed", allow_module_level=True)


class Skips:
    """On `sys.meta_path` it is asked for modules that nobody else finds: a test that imports a removed feature is skipped."""

    @staticmethod
    def find_spec(module, path=None, target=None):
        package, _, rest = module.partition("supervisor.features.")
        if not package:
            need(rest.partition(".")[0])
