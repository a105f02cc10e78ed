"""Floor 2: between a Trajectory and one line of a file format. Pure functions."""
