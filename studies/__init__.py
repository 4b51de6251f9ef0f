"""Published studies, each repeated by one command: ``python -m studies --help``."""
