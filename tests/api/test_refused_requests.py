"""Each request that makes no sense is answered with its status and one whole sentence: what is wrong, and what there is.

Those that tests/outside records are not repeated here.
"""

import json

import pytest
from serving import call

from supervisor.api.limits import MOST_BODY_BYTES

TEXT = "must be a text of up to 100 printable characters"

BODIES = [
    ("ask", b"[1]", 400, "the body must be a JSON object"),
    ("ask", b'{"verb": "stop", "verb": "start"}', 400, "the body is not JSON: a key is given twice"),
    ("ask", b'{"timeout_s": NaN}', 400, "the body is not JSON: NaN is not a number"),
    ("ask", b'{"verb": "stop", "wait": 1}', 400, "wait must be true or false"),
    ("update", b'{"dry_run": "yes"}', 400, "dry_run must be true or false"),
    ("ask", b'{"verb": "stop", "timeout_s": true}', 400, "timeout_s must be a number of seconds up to 3600"),
    ("ask", b'{"verb": "stop", "timeout_s": 3600.5}', 400, "timeout_s must be a number of seconds up to 3600"),
    ("backup", json.dumps({"label": "x" * 101}).encode(), 400, f"label {TEXT}"),
    ("when-done", b'{"do": "dance"}', 400, "do must be one of cancel, delay, now"),
    ("when-done", b'{"do": "delay"}', 400, "delay, and nothing else, needs for_s, a number of seconds"),
    ("when-done", b'{"do": "now", "for_s": 5}', 400, "delay, and nothing else, needs for_s, a number of seconds"),
    ("remove", b"{}", 400, "name must be the name of a program"),
    ("level", b'{"pin": 7}', 400, "pin must be the name of a level"),
    ("level", b'{"pin": "light", "for_s": 0}', 400, "for_s must be a number of seconds, more than 0 and at most 316224000"),
    ("ask", b" " * (MOST_BODY_BYTES + 1), 413, "the body is larger than 65536 bytes"),
]  # fmt: skip
PAGES = [
    ("/api/v1/logs/Pong/stdout?tail=-1", 400, "tail must be a whole number from 0 to 1048576, not '-1'"),
    ("/api/v1/logs/Pong/stdout?offset=0&limit=0", 400, "limit must be a whole number from 1 to 1048576, not '0'"),
    ("/api/v1/logs/Pong/stdout?offset=x", 400, f"offset must be a whole number from 0 to {2**62}, not 'x'"),
    ("/api/v1/cost?since=nan", 422, "since must be all, boot, seconds as 3600s or a time as @1790000000, not 'nan'"),
]


@pytest.mark.parametrize(("page", "body", "status", "sentence"), BODIES)
def test_a_body_that_makes_no_sense(api, backend, page, body, status, sentence):
    assert call(api, f"/api/v1/{page}", body) == (status, {"error": sentence})
    assert not backend.asked


@pytest.mark.parametrize(("target", "status", "sentence"), PAGES)
def test_a_page_that_is_none(api, backend, tmp_path, target, status, sentence):
    backend.change("Pong", stdout_log=str(tmp_path / "stdout.log"))
    assert call(api, target) == (status, {"error": sentence})
