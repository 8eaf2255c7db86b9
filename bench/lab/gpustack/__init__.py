"""What GPUStack needs of a benchmark: its command, its benchmark image, its results."""
