"""What the import system looks like once Lightning was imported, both ways round."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    import pytorch_lightning as second  # noqa: F401

    import lightning as first  # noqa: F401

    held = [
        sorted(vars(f)) for f in sys.path_importer_cache.values() if f is not None and "lightning" in repr(f)
    ]
    found = {
        "finders": [repr(type(f)) for f in sys.meta_path],
        "hooks": len(sys.path_hooks),
        "path": sys.path[1:],
        "instance": sorted({name for names in held for name in names}),
        "loaders": sorted(
            name
            for name, module in sys.modules.items()
            if "lightning" in name and "exec_module" in getattr(module.__loader__, "__dict__", {})
        ),
    }
    Path(sys.argv[1]).write_text(json.dumps(found))
