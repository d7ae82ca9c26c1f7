"""How near network and rule come to what a device could do: arithmetic, bytes, and the share of the limit."""
