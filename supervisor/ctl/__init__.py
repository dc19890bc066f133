"""extralifectl: a client of the API."""
