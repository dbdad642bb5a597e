"""Tier 0: the real script on the CPU, with tensors that it believes to be on a GPU marked.

Three parts, arrows one way:

- `residence` says where a tensor's memory would be. The mark sits on the storage, so that views,
  in-place results, `.data`, parameters and saved tensors share it.
- `following` is a dispatch mode: results of marked tensors are marked, and the operations that
  would make the host wait are recorded (`rules`, `transfers`).
- The other files replace what would need a GPU: tensor methods, factories, `torch.cuda`.
"""

from syncfree.detector.tier0.tier import Tier0

__all__ = ["Tier0"]
