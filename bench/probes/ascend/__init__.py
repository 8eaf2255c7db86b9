"""Huawei Ascend boards."""
