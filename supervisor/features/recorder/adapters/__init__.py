"""The thread that records."""
