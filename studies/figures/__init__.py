"""The paper's figures, rebuilt on our models from stored rows: no GPU, and no number typed by hand."""
