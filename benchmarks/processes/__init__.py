"""What a second process costs, and how soon the first row is there."""
