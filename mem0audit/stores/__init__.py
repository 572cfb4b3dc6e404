"""One outside thing a module: the history file, the embedded store, mem0 itself, the file system."""
