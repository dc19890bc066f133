"""Alerts: the log of reboots, and delivery to other services."""
