"""Several Python environments in one run (``--envs``): which they are, and how their rounds alternate.

spec        what the person wrote
make        a virtual environment for requirements such as torch==2.2.2, made once and kept
probe       what an interpreter says of itself, or the sentence why it cannot be used
resolve     all of these: from words to environments
plan        jobs whose candidates are each compiler in each environment
seats       who takes part in a round, and what a round of all is
run         one job: a worker for each environment, open at once
records     where its workers are started
compare     what statistics make of the records
"""
