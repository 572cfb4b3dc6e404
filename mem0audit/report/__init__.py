"""A Report in, text or JSON out."""
