"""The same layers as XLA and TPUs compile them best: equal outputs and gradients, less memory and traffic."""
