from api_fixtures import api, backend, shared, socket_path  # noqa: F401
