"""Simulated hosts for the load policy: `bench/load.py` and tests play on them."""
