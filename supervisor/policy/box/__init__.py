"""Rules about the box: its identity, the load that it can bear, and why it went down."""
