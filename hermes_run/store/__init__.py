"""Floor 3: the run directory. The journal is the only truth about what is done."""
