"""Rules about the jobs and nodes of a cluster under Slurm."""
