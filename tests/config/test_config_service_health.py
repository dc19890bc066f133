"""`health = { ... }` of a service."""

from __future__ import annotations

import tomllib

import pytest
from config_kit import Place

from supervisor.policy.script.service_health import HealthCheck

SERVICE = '[program.x]\ncommand = "sleep 1"\nkind = "service"\n'


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ('http = "https://h:8/x?y"', HealthCheck(http="https://h:8/x?y")),
        ('tcp = "[::1]:80", every_s = 1, timeout_s = 0.5, failures = 1, grace_s = 0',
         HealthCheck(tcp="[::1]:80", every_s=1.0, timeout_s=0.5, failures=1, grace_s=0.0)),
        ('command = "a \'b c\'"', HealthCheck(command=("a", "b c"))),
        ('command = ["a", "b c"]', HealthCheck(command=("a", "b c"))),
        ('http = "http://h:1", every_s = 31_622_400, timeout_s = 0.1, failures = 1000',
         HealthCheck(http="http://h:1", every_s=31_622_400.0, timeout_s=0.1, failures=1000)),
        ('tcp = "h:65535", grace_s = 31_622_400.0', HealthCheck(tcp="h:65535", grace_s=31_622_400.0)),
        ('tcp = "h:1"', HealthCheck(tcp="h:1")),
    ],
)  # fmt: skip
def test_what_can_be_asked(place: Place, given: str, check: HealthCheck) -> None:
    spec = place.program("x", f"{SERVICE}health = {{ {given} }}\n")
    assert spec.health == check
    assert spec.digest != place.program("x", SERVICE).digest
    loaded = place.load(f"{SERVICE}health = {{ {given} }}\n")
    shown = (loaded.values["program.x.health"], str(loaded.origins["program.x.health"]))
    assert shown == (tomllib.loads(f"health = {{ {given} }}")["health"], f"{place.file}:4")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('"http://h/"', "program.x.health must be a table such as { http = \"http://127.0.0.1:6006/\" }, not 'http://h/'"),
        ("{}", 'program.x.health must have exactly one of http, tcp and command, such as { http = "http://127.0.0.1:6006/" }'),
        ('{ http = "http://h", tcp = "h:1" }', 'program.x.health must have exactly one of http, tcp and command, such as { http = "http://127.0.0.1:6006/" }'),
        ('{ http = "ftp://h" }', "program.x.health.http must be a URL such as http://127.0.0.1:6006/, not 'ftp://h'"),
        ('{ http = "http://h:99999/" }', "program.x.health.http must be a URL such as http://127.0.0.1:6006/, not 'http://h:99999/'"),
        ('{ tcp = "h" }', "program.x.health.tcp must be HOST:PORT such as 127.0.0.1:5432, not 'h'"),
        ('{ command = "\'" }', "program.x.health.command cannot be split into words: No closing quotation; close the quotation or give a list of strings"),
        ('{ tcp = "h:1", failures = 0 }', "program.x.health.failures must be at least 1, not 0"),
        ('{ http = "http://h:0" }', "program.x.health.http must be a URL such as http://127.0.0.1:6006/, not 'http://h:0'"),
        ('{ http = "http:///x" }', "program.x.health.http must be a URL such as http://127.0.0.1:6006/, not 'http:///x'"),
        ('{ tcp = "h:0" }', "program.x.health.tcp must be HOST:PORT such as 127.0.0.1:5432, not 'h:0'"),
        ('{ tcp = "h:65536" }', "program.x.health.tcp must be HOST:PORT such as 127.0.0.1:5432, not 'h:65536'"),
        ('{ command = ["a", 4] }', "program.x.health.command must be a string or a list of strings, such as [\"pg_isready\"], not ['a', 4]"),
        ('{ command = ["a\\u0000"] }', 'program.x.health.command names no program; write it such as ["pg_isready"], without NUL characters'),
        ('{ tcp = "h:1", failures = true }', "program.x.health.failures must be a whole number, not True"),
        ('{ tcp = "h:1", evry_s = 5 }', "program.x.health.evry_s is not a setting; did you mean every_s?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(place: Place, given: str, said: str) -> None:
    assert place.errors(f"{SERVICE}health = {given}\n") == [f"FILE, line 4: {said}"]


def test_it_is_for_services(place: Place) -> None:
    errors = place.errors('[program.x]\ncommand = "sleep 1"\nhealth = { tcp = "h:1" }\n')
    assert errors == ['FILE, line 3: program.x.health is for services; set kind = "service", or remove it']
