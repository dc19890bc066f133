"""Supervisor's fault codes, the only list of them: clients, scripts and monitoring plugins decide by these numbers.

Plain numbers without an import: `xmlrpc.client` refuses members of an enum, and `extralifectl pid` in a script's loop
must not spend time on importing `typing`.
"""

from __future__ import annotations

UNKNOWN_METHOD = 1
INCORRECT_PARAMETERS = 2
BAD_ARGUMENTS = 3
SIGNATURE_UNSUPPORTED = 4
SHUTDOWN_STATE = 6
BAD_NAME = 10
BAD_SIGNAL = 11
NO_FILE = 20
NOT_EXECUTABLE = 21
FAILED = 30
ABNORMAL_TERMINATION = 40
SPAWN_ERROR = 50
ALREADY_STARTED = 60
NOT_RUNNING = 70
SUCCESS = 80
ALREADY_ADDED = 90
STILL_RUNNING = 91
CANT_REREAD = 92

# Code -> name. The `start` and `stop` of Supervisor's own client raise on a code that is not in this list.
NAMES = {code: name for name, code in tuple(globals().items()) if name.isupper()}
