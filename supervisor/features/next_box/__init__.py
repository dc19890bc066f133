"""The next box: it takes over when the one before is presumed dead, and a machine that is always on rents it."""
