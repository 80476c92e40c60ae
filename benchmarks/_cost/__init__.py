"""The loops of the cost table."""
