"""The command-line interface, `keras-vit`. It may import all other packages; none of them imports it."""
