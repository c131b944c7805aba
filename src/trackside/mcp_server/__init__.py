"""The server for coding assistants: small views of the same records as MCP tools, resources and prompts."""
