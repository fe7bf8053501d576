"""`keras-vit report`, and the report of a run and of an evaluation."""
