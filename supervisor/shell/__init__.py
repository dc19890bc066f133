"""The deciding loop, and the code that performs its commands."""
