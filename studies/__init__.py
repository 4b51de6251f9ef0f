"""Studies that people made by hand, each as one command: ``python -m studies --help``."""
