"""Floor 5: the command line. One file per command; `main.py` has the table of them."""
