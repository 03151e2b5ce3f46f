"""Generated surgical video: `scenario` says what happens in it, `render` how that looks."""
