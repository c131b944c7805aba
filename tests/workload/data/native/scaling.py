"""Stands beside the workloads of this folder and is imported by them."""

SCALE = 2.0
