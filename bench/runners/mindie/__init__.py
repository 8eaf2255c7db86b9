"""MindIE, Huawei's engine for Ascend: where it is installed, its configuration file, the words of its log, and the runner."""
