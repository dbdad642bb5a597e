"""The torch ops: one file a metric, each with what torch.compile must know about its ops."""
