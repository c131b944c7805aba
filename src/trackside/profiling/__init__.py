"""Where a program's time goes: capture, and attribution to the lines of the user's code."""
