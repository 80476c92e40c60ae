"""What every test can rely on, however the test run was started."""

from __future__ import annotations

import signal

# A background job of a shell, or nohup, ignores these, and programs started by tests would inherit that.
for _number in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU"):
    _signal = getattr(signal, _number, None)
    if _signal is not None and signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _number == "SIGINT" else signal.SIG_DFL)
