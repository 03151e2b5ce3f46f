"""Which frames to label, and the way to labelling tools and back."""
