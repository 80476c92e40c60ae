"""A script that initialises TraceML itself: MONAI's trainer is then not measured."""

import sys

from _kit import case, loader, main, seen, train

import traceml
from traceml_ai.integrations import monai as traceml_monai

if sys.argv.pop(2) == "before":
    traceml.init()
    traceml_monai.init()
else:
    traceml_monai.init()
    traceml.init()


@case
def after_a_plain_init_nothing_is_published():
    results = [train(loader(4), first=[traceml_monai.TraceMLHandler()]).result(), train(loader(4)).result()]
    s = seen()
    if s:
        assert s.steps == []
    return results


if __name__ == "__main__":
    main()
