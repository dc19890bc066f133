"""Rules and records of a cluster of nodes under Slurm. No module here is imported without `[launcher] kind = "slurm"`."""
