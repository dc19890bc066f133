"""Slurm's commands: one module calls them, one reads what they print."""
