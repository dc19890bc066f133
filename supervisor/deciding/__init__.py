"""The pure function `decide`: it turns each input into facts and commands. One file for each kind of decision."""
