"""From evidence to findings: rules that name a problem, its line, what a change would gain, what to type."""
