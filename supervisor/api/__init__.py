"""What the daemon serves: JSON over the control socket."""
