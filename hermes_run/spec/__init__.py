"""Floor 1: from YAML to a frozen, typed Spec. Knows nothing of running. Only reader of os.environ."""
