"""`POST /api/v1/offsite`: answered at its start; the page `offsite` shows the outcome."""

from __future__ import annotations

from typing import Final

from supervisor.api.posts import Post, action
from supervisor.model.inputs import Verb

_ACTIONS: Final = ("now", "check", "forget", "take-over")

POSTS: Final = {"offsite": Post(Verb.OFFSITE, ("do",), lambda body: (action(body, _ACTIONS), None))}
