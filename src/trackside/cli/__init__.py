"""The command line: one file per verb, each of which parses, calls, renders and returns an exit code."""
