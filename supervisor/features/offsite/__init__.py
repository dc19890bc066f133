"""Copies of all trainings in a restic repository, off the box, and their restore on another one."""
