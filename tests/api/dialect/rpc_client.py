"""`xmlrpc.client` over a unix socket: what tools written for Supervisor use."""

import xmlrpc.client

from serving import Connection


class UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def make_connection(self, host):
        if self._connection[1] is None:
            self._connection = host, Connection(self.path)
        return self._connection[1]

    def parse_response(self, response):
        assert (response.getheader("content-type") or "").partition(";")[0] == "text/xml"
        return super().parse_response(response)


_OPEN = []


def proxy(path):
    _OPEN.append(UnixTransport(path))
    return xmlrpc.client.ServerProxy("http://localhost", _OPEN[-1])


def close_all():
    """At the end of each test that asked for a proxy."""
    while _OPEN:
        _OPEN.pop().close()


def fault_of(call, *args):
    """(code, text) of a call that is refused."""
    try:
        value = call(*args)
    except xmlrpc.client.Fault as fault:
        return fault.faultCode, fault.faultString
    raise AssertionError(f"not refused, but answered with {value!r}")
