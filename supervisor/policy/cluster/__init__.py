"""Rules and records of a cluster of nodes under Slurm. Nothing of it is imported without `[launcher] kind = "slurm"`."""
