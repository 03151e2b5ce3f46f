"""Theme, templates and tables that report, comparison and studio share."""
