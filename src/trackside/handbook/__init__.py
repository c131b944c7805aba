"""The checklist for training and inference on GPUs, as data: what to check, how to mend it, what for."""
