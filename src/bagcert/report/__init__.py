"""One self-contained page from rows, with tables and figures beside it. It reads rows; it never runs a model."""
