"""What backups do in the world."""
