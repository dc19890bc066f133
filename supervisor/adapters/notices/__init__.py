"""Notices that this box ends: metadata services of providers, a command, a file."""
