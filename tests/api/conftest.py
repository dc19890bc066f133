import structlog
from api_fixtures import api, backend, bodies_may_come_late, shared, socket_path  # noqa: F401

# Where rich is installed, structlog prints a traceback with all that each local variable holds: seconds for a fake backend.
structlog.configure(
    processors=[
        structlog.stdlib.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
