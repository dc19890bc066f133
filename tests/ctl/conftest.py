import pytest
from api_fixtures import api, backend, bodies_may_come_late, shared, socket_path  # noqa: F401
from patients import make


@pytest.fixture
def installation(tmp_path):
    """Two games, and a host that is made of files below `tmp_path`."""
    return make(tmp_path)
