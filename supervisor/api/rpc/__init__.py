"""XML-RPC as Supervisor 4.3.0 speaks it, so that its own `supervisorctl` and tools made for it work unchanged."""
