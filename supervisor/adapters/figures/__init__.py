"""Figures from the files of a program's own script: a thread of the daemon, and a child process that reads them."""
