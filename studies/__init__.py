"""What we measure and compare, outside the package: the paper's figures, rivals, and the results they are made of."""
