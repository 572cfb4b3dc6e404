"""Commands: one file a command group. Exit codes, streams and colours live here and nowhere else.

Command modules import typer and data only; what a command works with is imported when it runs, so that
`--help`, completion and `explain` answer at once.
"""
