"""Floor 3: the turn loop. No files, no registries, no third party."""
