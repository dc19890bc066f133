"""The host: its boot, its clock, its hardware, its service manager."""
