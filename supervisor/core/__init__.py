"""What happened, what is true, what to do: pure."""
