"""What the next box reads and writes in the repository of copies."""
