"""Where a program's time goes: runs it as Python would, captures windows of it, attributes them to lines."""
