"""What the machine is, what it does while we measure, and how fast it can be: facts, telemetry, ceilings."""
