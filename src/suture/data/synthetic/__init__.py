"""Generated surgical video: `scenario` plans it, `render_video` renders it, `write_synthetic` writes a dataset."""
