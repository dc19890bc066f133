"""What is recorded, how rows are folded, and at which resolution they are kept."""
