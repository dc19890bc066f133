"""Pages for people and programs, made from the facts by pure functions. They decide nothing."""
