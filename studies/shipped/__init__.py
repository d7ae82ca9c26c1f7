"""Certify the shipped models against every patch, and attack them."""
