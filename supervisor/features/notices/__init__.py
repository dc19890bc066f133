"""Notices: what announces that this box will end, and what is saved before it does."""
