"""Starts, watches and ends processes, and reads the files that they leave behind."""
