"""Rules that only a user's own script needs: its command, its figures, its steps, its health checks."""
