"""Copies of checkpoints: of backups, of copies off the box, and of a program's own checkpoints."""
