"""Basics for every room: errors, files, settings, text, progress, processes."""
