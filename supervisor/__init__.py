"""A self-healing training supervisor: one daemon that keeps training runs alive."""
