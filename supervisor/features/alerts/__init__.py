"""Alerts: messages to people about what has happened, and the daily report."""
