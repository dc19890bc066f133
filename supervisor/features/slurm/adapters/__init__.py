"""The adapters for a Slurm cluster. `client.py` runs Slurm's commands, and `reading.py` parses their output."""
