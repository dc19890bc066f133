"""One rule a file: pure functions whose docstring is the rule with a worked example."""
