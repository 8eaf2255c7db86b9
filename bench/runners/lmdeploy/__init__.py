"""LMDeploy: what is installed, its two engines and their precisions, the words of its log, and the runner."""
