"""Train the paper's sweep and its score functions, for the rows behind the figures."""
