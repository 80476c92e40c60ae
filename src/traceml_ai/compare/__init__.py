"""Two sides of runs against one another: are they comparable, did step time change, where did it go?

    likeness     may they be compared at all, and what was set differently
    longrun      the standard error of one run's mean, from block means of autocorrelated steps
    student      quantiles of Student's distribution
    noise        the spread between runs: from the runs compared, from earlier ones, or assumed
    history      levels of a series of runs, and the noise around them
    verdict      interval and verdict of step time, and what an UNKNOWN would take
    phases       where the time moved
    changes      findings, memory, throughput, time between steps
    gate         the conditions of a CI job
    comparison   all of it together

Pure: values in, values out.
"""
