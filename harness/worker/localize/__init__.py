"""Where a candidate goes wrong: the stage of its compiler, and the smallest submodule."""
