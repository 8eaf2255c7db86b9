"""The trial loop (prepare, idle, start, warm up, measure, drain, save). Sees only `bench.ports`."""
