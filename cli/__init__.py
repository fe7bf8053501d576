"""The command line, `keras-vit`. It stands above the library, recipes and export and may use all of them."""
