"""Tier 3: observes every driver call that makes the host wait, from any library, through CUPTI.

`library.py` finds CUPTI, the extension (csrc/runtime/driver_watch.h) logs calls, `judging.py`
decides what each of them means, `tier.py` passes the events to the regions whose code made the
call. A *mark* (csrc/runtime/gpu_marks.h) is a number that the GPU writes to host memory when the
stream reaches it: until it is there, the GPU is known to be busy.
"""

from syncfree.detector.tier3.tier import Tier3

__all__ = ["Tier3"]
