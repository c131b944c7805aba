"""A traced timeline: its dependency graph, its critical path, and what an edit would make of it."""
