"""Every part of a model must count: weights at which it does, and the slope of each part's results."""
