"""The journal: one SQLite file of facts, its archive, and what is saved of a damaged one."""
