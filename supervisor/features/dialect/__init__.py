"""Supervisor's dialect: its XML-RPC interface, its configuration files, and its event listeners."""
