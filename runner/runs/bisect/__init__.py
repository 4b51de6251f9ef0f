"""``--bisect``: the first version of a package with which a model's status or speed changes.

versions   the value of the flag -> all versions between two ends, as pip lists them
evidence   a run of two environments in alternation -> the evidence on the newer version
search     selects the next version, and decides when the search ends
command    makes the environments, measures, prints the evidence
"""
