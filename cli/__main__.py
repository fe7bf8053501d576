"""`python -m keras_vit_cli`, where the folder of the script `keras-vit` is not in PATH."""

import sys

from keras_vit_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
