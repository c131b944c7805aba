"""What selfcheck compares: one file per workload, each able to do a known percentage more of its own work."""
