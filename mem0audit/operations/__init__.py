"""What a user asks for: each knows several outside things and decides nothing by itself."""
