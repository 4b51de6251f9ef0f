"""The start-up race: when each form of a candidate overtakes eager."""
