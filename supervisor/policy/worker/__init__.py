"""Rules about one worker: whether it is well, and what the daemon does when it is not."""
