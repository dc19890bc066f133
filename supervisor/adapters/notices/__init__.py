"""Notices that this box will end: metadata services of providers, a command, a file."""
