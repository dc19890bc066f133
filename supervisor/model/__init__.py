"""What happened, what is true, what to do: records without behaviour of their own."""
