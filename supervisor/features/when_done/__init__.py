"""The end of the work: everything is saved and copied, then a command stops this box."""
