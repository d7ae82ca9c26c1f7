"""Train networks whose targets come from teachers that have not seen the image."""
