"""`POST /RPC2`, and the two pages of logs that the stock client follows."""

from __future__ import annotations

from supervisor.api.added import Routes, Serving
from supervisor.features.dialect.http import Rpc


def routes(serving: Serving) -> Routes:
    rpc = Rpc(serving.backend, serving.read, serving.wait)
    return Routes(
        get={"/logtail/{spec:path}": rpc.log_tail, "/mainlogtail": rpc.main_log_tail},
        post={"/RPC2": rpc.post, "/RPC2/": rpc.post}, end=rpc.end,
    )  # fmt: skip
