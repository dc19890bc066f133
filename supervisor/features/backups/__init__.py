"""Backups: verified copies of checkpoints on this box, and the return to one of them."""
