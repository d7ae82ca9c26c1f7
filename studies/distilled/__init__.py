"""Small networks that learn the score maps of a large model, position by position."""
