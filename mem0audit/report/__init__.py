"""Report -> text and json. Nothing here opens, asks or decides; a renderer takes values and gives text."""
