"""Floor 2: judging what was kept, and counting it. Pure."""
