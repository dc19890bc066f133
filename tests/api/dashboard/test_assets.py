"""The dashboard's files: all of them ship, nothing is fetched from elsewhere, and a browser may do no more than it has to."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest
from serving import Connection

from supervisor.features.dashboard.assets import DIRECTORY

MOST_BYTES = 100_000  # of the whole page, gzipped
LOADED = [file for file in sorted(DIRECTORY.rglob("*")) if file.suffix in {".js", ".css", ".html"}]


def get(api: Path, target: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = Connection(api)
    try:
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def stamped(api: Path) -> str:
    """Where the page finds its assets."""
    (found,) = set(re.findall(rb'"(/assets/[0-9a-f]{16}/)', get(api, "/")[2]))
    return found.decode()


def test_the_page_is_small_and_loads_only_files_that_are_served(api: Path) -> None:
    base, weight = stamped(api), 0
    for file in LOADED:
        path = file.relative_to(DIRECTORY).as_posix()
        target = "/" if path == "index.html" else base + path
        status, headers, body = get(api, target, **{"accept-encoding": "gzip"})
        assert status == 200
        assert headers["content-encoding"] == "gzip"
        weight += len(body)
        text = gzip.decompress(body).decode()
        assert re.sub(r"<link rel=.modulepreload.*\n", "", text).replace(base, "/assets/") == file.read_text(), path
        for name in [*re.findall(r'"/assets/[^"]+"', text), *re.findall(r'from ?"(\.[^"]+)"', text)]:
            found = (DIRECTORY / name.strip('"').removeprefix(base)) if name.startswith('"') else file.parent / name
            assert found.is_file(), f"{path} names {name}"
    status, _, body = get(api, f"{base}references.json", **{"accept-encoding": "gzip"})
    assert status == 200
    assert json.loads(gzip.decompress(body))["Pong"] == [-20.7, 14.6]
    assert weight + len(body) < MOST_BYTES


def test_the_browser_is_told_of_every_module_at_once(api: Path) -> None:
    """Else it finds them one after another, a round trip to the box for each."""
    page = get(api, "/")[2].decode()
    named = set(re.findall(r'(?:modulepreload" href|src)="/assets/[0-9a-f]{16}/([^"]+[.]js)"', page))
    assert named == {file.relative_to(DIRECTORY).as_posix() for file in LOADED if file.suffix == ".js"}


def test_an_asset_is_kept_for_good_and_the_page_is_asked_for_each_time(api: Path) -> None:
    base = stamped(api)
    _, page, _ = get(api, "/")
    status, asset, body = get(api, f"{base}app.js")
    assert (status, page["cache-control"]) == (200, "no-cache")
    assert "immutable" in asset["cache-control"]
    assert asset["content-type"] == "text/javascript; charset=utf-8"
    assert body == (DIRECTORY / "app.js").read_bytes()
    assert get(api, "/", **{"if-none-match": page["etag"]})[::2] == (304, b"")
    old = get(api, "/assets/0123456789abcdef/app.js")
    assert (old[0], old[1]["cache-control"]) == (200, "no-cache"), "of another version: served, and not kept"


@pytest.mark.parametrize(
    "path", ["nothing.js", "../api/app.py", "..%2fapi%2fapp.py", "%2e%2e/api/app.py", "/etc/passwd", ""]
)
def test_nothing_else_is_served(api: Path, path: str) -> None:
    status, _, body = get(api, f"/assets/0123456789abcdef/{path}")
    assert (status, json.loads(body)["error"]) == (404, "no such file of the dashboard")


def test_a_browser_may_do_no_more_than_it_has_to(api: Path) -> None:
    for target in ("/", f"{stamped(api)}app.js"):
        headers = get(api, target)[1]
        rules = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_files_of_others_are_those_that_their_authors_published() -> None:
    vendor = DIRECTORY / "vendor"
    said = {
        f"{package['name']}/{path}": digest
        for package in json.loads((vendor / "vendored.json").read_text())["packages"]
        for path, digest in package["files"].items()
    }
    found = [file for file in vendor.rglob("*") if file.is_file() and file.name != "vendored.json"]
    assert {file.relative_to(vendor).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in found} == said
    assert {file.parent.name for file in found if file.name == "LICENSE"} == {"uplot", "lit-html"}
