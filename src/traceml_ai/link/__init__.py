"""GATHER, between nodes: blocks of step records, encoded, sent under a key to the node that owns the run."""
