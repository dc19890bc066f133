"""The deciding loop and what performs its commands."""
