"""What composes trials: run plans, sweeps, energy of a command, rederiving, the self-check of the client."""
