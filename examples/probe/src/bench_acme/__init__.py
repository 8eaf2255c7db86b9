"""Acme boards for `bench`."""
