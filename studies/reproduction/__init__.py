"""Fill the tables of docs/reproduction.md: the paper's numbers beside ours."""
