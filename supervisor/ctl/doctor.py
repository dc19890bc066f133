"""`doctor`: faults of host, installation and settings that prevent weeks of training, and the remedy for each.

It changes nothing, and needs neither a daemon nor root. With fewer permissions it finds out less: a check that cannot run
reports `unknown`, never `ok`. If one check fails, or hangs on a driver, the other findings are still reported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path

from supervisor import discovery
from supervisor.ctl import checks, text
from supervisor.ctl.checks import Finding, Installation, NoSettings, unknown_finding
from supervisor.ctl.outcome import GENERIC, OK, Failed
from supervisor.ctl.session import Session, parse_options

_CHECK = {"installation": "Installation", "return": "Iterator[Finding]"}
LEVELS = ("bad", "warn", "unknown", "ok")


def doctor(session: Session, args: list[str]) -> int:
    """`doctor [--json] [--skip CHECK]`.

    Check host, installation and settings: what is wrong, and what to do. Exit code 1 when something is bad.
    `--skip copies` writes nothing into the repository of copies.
    """
    names, options = parse_options(args, "--json", valued=("--skip",))
    if names:
        raise Failed(f"Error: doctor takes no names, not {text.printable(names[0])!r}")
    found = examine(session, options.get("--skip", ""))
    session.show({"findings": [each.as_json() for each in found]}, lambda _: page(found), options)
    return GENERIC if any(each.level == "bad" for each in found) else OK


def examine(session: Session, skip: str = "") -> list[Finding]:
    """Every finding, the worst first. Raises Failed if no check is called `skip`."""
    installation = checks.load_installation(session.options)
    found: list[Finding] = []
    all_checks = {check.__name__.replace("_", " "): check for check in _checks()}
    if skip and all_checks.pop(skip, None) is None:
        raise Failed(f"Error: doctor has no check {text.printable(skip)!r}; there are {', '.join(sorted(all_checks))}")
    for name, check in all_checks.items():
        try:
            found += list(check(installation))
        except NoSettings:
            continue
        except PermissionError as error:
            found.append(unknown_finding(name, error))
        except Exception as error:  # noqa: BLE001  an unusual host may break a check in any way
            what = f"could not be checked: {type(error).__name__}: {error}"
            found.append(Finding(name, "unknown", what, "report this to extralife's developers"))
    return sorted(found, key=lambda each: LEVELS.index(each.level))


def _checks() -> list[Callable[[Installation], Iterable[Finding]]]:
    """The checks of all modules `checks*.py`: their public functions from an installation to its findings."""
    names = [each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)]) if each.name.startswith("checks")]
    modules = [*(importlib.import_module(f"supervisor.ctl.{name}") for name in names), *discovery.modules("checks")]
    found = [each for module in modules for each in vars(module).items()]
    return [made for name, made in found if getattr(made, "__annotations__", None) == _CHECK and not name.startswith("_")]


def page(found: list[Finding]) -> list[str]:
    """One line per finding, with its remedy below it; at the end the number of findings per level."""
    wide = max((len(each.name) for each in found), default=0)
    out = []
    for each in found:
        out.append(f"{each.level:<7}  {each.name:<{wide}}  {text.printable(each.what)}")
        if each.do:
            out.append(f"{'':<7}  {'':<{wide}}  -> {text.printable(each.do)}")
    counts = [f"{sum(each.level == level for each in found)} {level}" for level in LEVELS]
    return [*out, "", ", ".join(counts)]
