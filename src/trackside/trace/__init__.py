"""What ran when: profiler traces in columns, their timeline, dependencies and critical path."""
