"""Local web app: look at videos, label frames, train, review, and go on with the next round."""
