"""MEASURE: what runs inside the training process (standard library and torch only)."""
