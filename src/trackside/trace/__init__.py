"""What ran when: profiler traces in columns, their timeline, dependencies, critical path, and what-ifs."""
