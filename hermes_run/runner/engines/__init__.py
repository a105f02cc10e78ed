"""One file per engine: where rollouts run. The driver alone writes."""
