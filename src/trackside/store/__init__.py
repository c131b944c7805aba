"""Run records on disk, jobs that make them, and the lock that keeps two measurements off one device."""
