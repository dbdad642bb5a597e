"""The torch ops, a file for each metric, with their fakes.

A fake gives the shapes, dtypes and devices of an op's results for torch.compile and the meta
device, and raises the errors that csrc/ops raises for wrong arguments.
"""
