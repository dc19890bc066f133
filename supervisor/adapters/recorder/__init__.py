"""The recorder: samples of what runs, kept in a file of their own at falling resolution. Losing it loses pictures alone."""
