"""Would kernels of our own pay? A network as products of matrices in bfloat16 or fp8, beside the program fast."""
