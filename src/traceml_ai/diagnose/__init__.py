"""Judgement: one rule a file over named signals, and the summary that comes of it."""
