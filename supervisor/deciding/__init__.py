"""One pure function, `decide`: from what was seen to facts and commands. One file for each thing that it decides."""
