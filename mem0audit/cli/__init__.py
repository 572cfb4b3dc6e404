"""The terminal: commands, exit codes, and nothing else knows either."""
