"""Runs the functions of a script whose names begin with ``check_`` and writes what they returned."""

import json
import sys
import traceback


def run(namespace):
    """Call every check; what one raises is its result, not the end of the others."""
    found = {}
    for name, function in list(namespace.items()):
        if name.startswith("check_"):
            try:
                found[name] = json.loads(json.dumps(function(), default=str))
            except Exception as error:
                traceback.print_exc()
                found[name] = {"raised": f"{type(error).__name__}: {error}"}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
