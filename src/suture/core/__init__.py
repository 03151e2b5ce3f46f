"""What every room uses: errors, files, settings, text, progress, processes."""
