"""Floor 4: the one main flow, one rollout, what rollouts share, and the engines."""
