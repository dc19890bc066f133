"""`GET /metrics` on a real socket: formats, the cache of a turn, and no work for those who ask again."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from serving import raw

from supervisor.features.metrics.exposition import OPENMETRICS, TEXT


def scraped(api, accept=""):
    header = f"Accept: {accept}\r\n" if accept else ""
    asked = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
    head, _, body = raw(api, asked.encode()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert first.split()[1] == "200"
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}, body.decode()


def test_plain_text_unless_openmetrics_is_asked_for(api):
    headers, text = scraped(api)
    assert headers["content-type"] == TEXT
    assert "\nextralife_up 1.0\n" in text
    headers, text = scraped(api, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert headers["content-type"] == OPENMETRICS
    assert "extralife_up" in {family.name for family in text_string_to_metric_families(text)}
