"""A second opinion on stored certificates: plain, slow code that shares nothing with rules/ and threats/.

A rule is one row in `conditions.CONDITIONS`.
"""
