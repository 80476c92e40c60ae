"""The browser dashboard: a page that shows a run and can't change it."""
