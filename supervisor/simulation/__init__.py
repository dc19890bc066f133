"""What-if: simulated hosts for the load policy. No module of the daemon imports this."""
