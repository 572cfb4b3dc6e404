"""The rules, one module a group of findings."""
