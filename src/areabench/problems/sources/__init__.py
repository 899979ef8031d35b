"""Samples from outside the package: how their files are read, and how a data set is made of them."""
