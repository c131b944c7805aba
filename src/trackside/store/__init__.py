"""Run records on disk and the lock that keeps two measurements off one device."""
