"""Copies of all trainings in a restic repository, off the box."""
