"""Floor 2: from the lines of a dataset to a plan of packed keys and offsets. Streams."""
