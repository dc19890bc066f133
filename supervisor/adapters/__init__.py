"""Adapters to the outside world, one file each: clock, boot, processes, probes, journal, alerts."""
