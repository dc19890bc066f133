"""One rule per file: pure functions. The module docstring is the rule, with a worked example."""
