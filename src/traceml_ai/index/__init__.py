"""The runs of a log folder: one small row each, kept in a cache that may be deleted at any time."""
