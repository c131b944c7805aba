"""The trial: feeder, schedule, clocks, oracle, probes, checks and verdict."""
