"""Certify networks of different receptive fields together."""
