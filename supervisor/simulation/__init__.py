"""What would have happened: simulated hosts for the load policy. Nothing of the daemon imports this."""
