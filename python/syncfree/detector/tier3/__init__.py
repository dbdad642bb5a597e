"""Tier 3: every driver call that makes the host wait, whoever makes it, heard through CUPTI.

`library.py` finds CUPTI, the extension (csrc/runtime/driver_watch.h) logs calls, `judging.py` says
what each of them means, `tier.py` hands the verdicts to the regions whose code made the call.
"""

from syncfree.detector.tier3.tier import Tier3

__all__ = ["Tier3"]
