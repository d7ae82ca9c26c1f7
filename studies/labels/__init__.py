"""Several answers: sets of classes of the shipped models, and pictures of four tiles with labels and pixel classes."""
