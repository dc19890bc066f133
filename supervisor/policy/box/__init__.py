"""Rules about the box: which one it is, what it can bear, and why it went down."""
