"""The recording of figures, host and GPUs: its thread, the curves of it, and the verbs `plot` and `export`."""
