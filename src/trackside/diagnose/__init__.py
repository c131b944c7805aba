"""From evidence to findings: rules that name a problem, its line, what a change would gain, and what to "
"type."""
