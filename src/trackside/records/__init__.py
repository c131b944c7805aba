"""The versioned models that the other packages exchange, and the one error type of the project."""
