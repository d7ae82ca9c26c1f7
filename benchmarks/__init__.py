"""Timings, memory and soundness at scale, outside the package; what they found is in results/."""
