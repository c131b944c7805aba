"""Trackside: the performance engineer at your GPU's side."""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
