"""Notices that this box will end: a command, a file."""
