"""``--why``: where a compiled step loses time, tested by removing the cause."""
