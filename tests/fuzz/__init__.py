"""Every reader of files, fed with broken ones: it reads them, or refuses them in one line.

python -m tests.fuzz.run --minutes 5    looks for more, and keeps in corpus/ what met an answer that no file there met
"""
