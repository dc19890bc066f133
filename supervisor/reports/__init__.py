"""Pages: what people and programs are shown, made from the facts by pure functions. Nothing is decided here."""
