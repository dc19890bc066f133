"""Processes: starting, watching and ending them, and what they leave behind."""
