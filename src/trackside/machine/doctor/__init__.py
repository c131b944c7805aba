"""What is wrong with this machine, or with a script: probes for checklist items, and what they found."""
