"""Adapters from a framework's events to the probe. Importing one does not import its framework."""
