"""``--bisect``: the first version of a package with which a model's status or speed changes.

versions   what the person wrote -> the versions between two ends (pip knows which there are)
evidence   a run of two environments in alternation -> what it says of the later version
search     which version to try next, and when it is sure
command    makes the environments, measures, prints the evidence
"""
