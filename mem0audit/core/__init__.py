"""Pure: words, rules, reconciliation. No file, clock, network or print."""
