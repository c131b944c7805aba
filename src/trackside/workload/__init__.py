"""How user code is described and loaded, and the processes that run it."""
