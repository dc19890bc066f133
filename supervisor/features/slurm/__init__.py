"""Programs as jobs of a Slurm cluster: [launcher] kind = "slurm"."""
