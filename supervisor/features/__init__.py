"""The features: one folder each, which `rm -r` removes. docs/architecture.md has the contract and a worked example."""
