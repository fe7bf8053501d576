"""The Kotlin compiler of the npm registry, for the tests of phones' code; `make kotlin` downloads it."""

from keras_vit.export.web.page import Package, fetch_package

COMPILER = Package(
    "kotlin-compiler",
    "2.4.20",
    "IF5IVM7LpPhA/ntHQQpaVt1yxpaaQovtEVYLyqWMuaLr0XelLPPm7/sM6HLhtcRjjjoSsK7I7lP2kzYJkMy73w==",
    (),
)

if __name__ == "__main__":
    fetch_package(COMPILER)
