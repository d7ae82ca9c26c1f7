"""How cost grows with images, classes, grid and patch: time and memory, fitted exponents, and what is stated."""
