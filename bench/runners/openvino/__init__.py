"""OpenVINO GenAI: what is installed, the formats of its weights, its precision, the words of its log, and the runner."""
