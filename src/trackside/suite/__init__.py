"""The suite of `trackside.toml`: its file, its evaluation once (check) and on change (watch)."""
