"""The accelerators that people choose between: a data sheet with sources, and what its figures allow."""
