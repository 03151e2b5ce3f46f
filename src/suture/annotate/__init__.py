"""Selection of frames to label, and the exchange with labelling tools."""
