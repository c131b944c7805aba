"""The probes, one module a family or two; each registers itself when it is imported."""
