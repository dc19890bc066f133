"""Trainings of random habits under extralife, each beside a plain restart loop (docs/testing.md)."""
