"""What it does in the world."""
