"""One small file a recipe; each opens with its command, hardware, time and expected accuracy."""
