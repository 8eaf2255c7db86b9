"""TensorRT-LLM (`trtllm-serve`): what is installed, its LLM API options, the words of its log, and the runner."""
