"""The baseline's code with chatter on stdout and stderr, some of it looking like results."""

import sys

_calls = 0


def run(a, b):
    global _calls
    _calls += 1
    if _calls <= 5:
        print('{"verdict": "slower", "note": "debug output of an honest candidate"}')
        print("FAIL? no, just talking", file=sys.stderr)
    return a @ b
