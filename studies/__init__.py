"""What we measure and compare, outside the package: one folder per study, and the stored rows in results/.

Studies and benchmarks import the package and `studies.common`; the package imports neither.
"""
