"""Rows: what was certified or attacked, one record per image; reports and the verifier only read them."""
