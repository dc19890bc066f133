"""How pings reach their services."""
