"""Databases as SQLite opens them elsewhere."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

__all__ = ["read_only"]


def read_only(real: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    """As SQLite opens a file without permission to write, which root always has."""

    def connect(database: str | Path, **options: object) -> sqlite3.Connection:
        if database == ":memory:":
            return real(database, **options)
        return real(f"file:{database}?mode=ro", uri=True, **options)

    return connect
