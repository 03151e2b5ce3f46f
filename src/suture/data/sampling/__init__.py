"""Training frames, views, keys and neighbours, drawn by step."""
