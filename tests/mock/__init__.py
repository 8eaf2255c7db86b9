"""Tests of the mock engine."""
