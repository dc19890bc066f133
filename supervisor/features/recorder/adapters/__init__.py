"""The thread that records, its file, and the event files of workers."""
