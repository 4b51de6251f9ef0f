"""Other data of the same shapes: what is changed in place, and how large weights then are."""
