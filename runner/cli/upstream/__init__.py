"""The flags of PyTorch's ``benchmarks/dynamo``: accepted, translated, or answered in a sentence."""
