"""Training loops for Atari, one algorithm a file, and the contract that ties a worker to its supervisor."""
