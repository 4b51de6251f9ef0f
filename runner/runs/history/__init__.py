"""The index of all runs, stored beside them, and the history of their results.

The index (``history.sqlite``) is derived: ``--history --rebuild`` makes it again from the run folders.
"""
