"""Facts (events that happened), state (what follows from them) and commands (what to do): records without behaviour."""
