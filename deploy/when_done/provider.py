"""For the examples beside this file: a request to the provider's service succeeds, or ends the example with status 1.

Then the daemon tries again. No key stands in a command line.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

METADATA = os.environ.get("EXTRALIFE_METADATA", "http://169.254.169.254")
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not know this box's metadata


def of_box(name: str) -> str:
    """A variable that the provider sets for the box. An ssh session lacks it: there it is read from process 1."""
    try:
        first = Path("/proc/1/environ").read_text("utf-8", "replace").split("\0")
    except OSError:
        first = []
    found = os.environ.get(name) or dict(each.partition("=")[::2] for each in first).get(name)
    return found or sys.exit(f"{name} is not set, neither here nor in process 1")


def key_in(path: str) -> str:
    """The key in a file: alone, or as in a configuration of curl (`user = "KEY:"`)."""
    try:
        return re.sub(r'^user *= *"?|:?"?$', "", Path(path).expanduser().read_text("utf-8").strip())
    except OSError as error:
        sys.exit(f"{path} cannot be read ({error.strerror}); put the key of the service's API there, mode 0600")


def ask(
    url: str,
    body: dict[str, Any] | None = None,
    key: str = "",
    method: str | None = None,
    headers: dict[str, str] | None = None,
) -> Any:
    """The answer, parsed if it is JSON. `body`: {} is a POST without a body."""
    sent = {"User-Agent": "extralife"}  # some gateways refuse urllib's own name
    if key:
        sent["Authorization"] = f"Bearer {key}"
    if body is not None:
        sent["Content-Type"] = "application/json"
    sent |= headers or {}
    data = None if body is None else json.dumps(body).encode() if body else b""
    request = urllib.request.Request(url, data, sent, method=method)  # noqa: S310
    try:
        with (_DIRECTLY.open if url.startswith(METADATA) else urllib.request.urlopen)(request, timeout=60) as answer:  # noqa: S310
            text = answer.read(65536).decode()
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: status {error.code}: {' '.join(error.read(300).decode(errors='replace').split())}")
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"{url}: {error}")
    try:
        return json.loads(text)
    except ValueError:
        return text


def require(ended: bool, answer: object) -> None:
    """End with status 1 unless the box was ended."""
    if not ended:
        sys.exit(f"the service did not end this box: {str(answer)[:200]}")
