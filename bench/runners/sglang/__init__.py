"""SGLang: what is installed, how a precision is asked for, the words of its log, and the runner."""
