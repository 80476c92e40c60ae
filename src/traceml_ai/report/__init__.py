"""TELL: the summary as a text card and as files."""
