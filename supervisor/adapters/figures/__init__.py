"""Figures from what a program's own script writes: a thread of the daemon, and a child process that reads."""
