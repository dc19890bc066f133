"""Copies of all trainings in a repository of restic, off the box."""
