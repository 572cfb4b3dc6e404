"""mem0audit: reads both stores of a mem0 install side by side and keeps them safe."""

__version__ = "0.1.0"
