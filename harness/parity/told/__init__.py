"""What a person is told of a check: the words of a failure, and the table of all figures."""
