"""Rules about the load: which level to run at."""
