"""A million attacks on proven answers, in units that can be run in any sitting and by several processes.

plan     which units there are: a case (model, patch, rule), a kind of attack, a number
world    the test images that a case may attack, their proofs, their weakest placements
patches  what is painted: contents that cost nothing, and descents
sitting  run units, store what each found, add them up
"""
