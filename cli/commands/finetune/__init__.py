"""The command `keras-vit finetune`."""
