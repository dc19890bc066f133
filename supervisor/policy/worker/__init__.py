"""Rules about one worker: whether it is well, and what follows when it is not."""
