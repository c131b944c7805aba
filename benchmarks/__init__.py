"""Trackside measured by itself: `python -m benchmarks --device cpu|cuda [--part NAME]`."""
