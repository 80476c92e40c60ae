#!/usr/bin/env bash
# Everything about an accelerator that needs one, in at most eight minutes: see gpu_check.py.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
python="$here/../.venv/bin/python"
[ -x "$python" ] || python="${PYTHON:-python3}"
exec "$python" "$here/gpu_check.py" "$@"
