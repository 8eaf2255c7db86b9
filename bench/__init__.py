"""tokjoule: how fast, and for how many joules, an LLM engine answers.

Importing this package loads no engine, no vendor package and no database: each is imported where it is used.
"""

__version__ = "0.1.0"
