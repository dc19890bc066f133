"""The daemon's API: JSON, XML-RPC, metrics and the dashboard, over the control socket and TCP."""
