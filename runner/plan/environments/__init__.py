"""The Python environments of a run (``--envs``).

spec        parses the values of --envs
make        makes a virtual environment for requirements such as torch==2.2.2, and keeps it
probe       asks an interpreter for its versions, or says why it cannot be used
plan        makes each compiler in each environment a candidate of a job
prepare     makes and checks all given environments, and gives them the jobs
"""
