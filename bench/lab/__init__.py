"""What composes trials: sweeps, A/B pairs, executors. Empty until the first of them lands."""
