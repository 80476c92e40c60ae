"""Says what a rank finds around it."""

import json
import os
import sys

import torch

kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEML_")}
with open(f"{sys.argv[1]}-{os.environ['RANK']}.json", "w") as file:
    json.dump(
        {"environ": kept, "threads": torch.get_num_threads(), "argv": sys.argv[1:], "path": sys.path}, file
    )
