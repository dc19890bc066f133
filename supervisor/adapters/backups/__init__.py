"""Backups on disk, and the thread that makes them."""
