"""The journal: one SQLite file of facts, its archive, and the recovery of a damaged one."""
