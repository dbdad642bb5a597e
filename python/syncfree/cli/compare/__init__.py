"""Compares two folders of pictures: pairing, decoding, measuring and reporting, one module each."""
