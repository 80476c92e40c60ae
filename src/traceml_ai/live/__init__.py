"""Watching a run while it goes on: a terminal view and a browser page over immutable snapshots."""
