"""Compilations beside the one of the timed process, and the compile caches of all workers."""
