"""The dashboard: a page in the browser, and the way to it from a laptop."""
