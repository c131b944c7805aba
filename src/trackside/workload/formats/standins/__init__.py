"""Modules with the names that GPU MODE tasks import, for a task folder that was copied without them."""
