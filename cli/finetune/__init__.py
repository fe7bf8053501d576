"""`keras-vit finetune`."""
