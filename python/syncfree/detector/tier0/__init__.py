"""Tier 0: runs the real script on the CPU, and marks the tensors that it would have on a GPU.

The *virtual device* is the one GPU that the script seems to have; a *marked* tensor is a CPU tensor
that says it is there. Three parts, each of which uses only those above it:

- `residence` says where a tensor's memory would be. The mark sits on the storage, so that views,
  in-place results, `.data`, parameters and saved tensors share it.
- `following` is a dispatch mode: it marks the results of marked tensors, and records the operations
  that would make the host wait (`rules`, `transfers`).
- The other files replace what would need a GPU: tensor methods, factories, `torch.cuda`.
"""

from syncfree.detector.tier0.tier import Tier0

__all__ = ["Tier0"]
