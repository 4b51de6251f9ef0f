"""Reports in the formats of other programs, made only if ``--format`` names them (docs/CI.md)."""
