"""supervisorctl: a client of the API."""
