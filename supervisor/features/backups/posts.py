"""`POST /api/v1/backup` and `rollback`: answered once the backup, or the rollback, has begun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from supervisor.api.inputs import RequestRefused
from supervisor.api.posts import Post
from supervisor.model.inputs import Verb


def _named(body: Mapping[str, Any]) -> tuple[str, None]:
    if not body["backup"]:
        raise RequestRefused(400, "backup must be the name of a backup")
    return body["backup"], None


POSTS: Final = {
    "backup": Post(Verb.BACKUP, ("names", "label"), lambda body: (body["label"], None)),  # no names: every program
    "rollback": Post(Verb.ROLLBACK, ("names", "backup"), _named),  # no names: all programs in it
}
