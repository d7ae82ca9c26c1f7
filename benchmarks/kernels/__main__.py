"""Time a network as products of matrices in bfloat16 or fp8, beside the program fast."""

from benchmarks.kernels.command import kernels
from studies.common.commands import call

if __name__ == "__main__":
    call(kernels)
