"""Every run in an index beside the runs, and what became of their numbers over time.

The index (``history.sqlite``) is derived: ``--history --rebuild`` makes it again from the run folders.
"""
