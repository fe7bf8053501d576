"""A static web page that runs a .tflite file in the browser with LiteRT.js."""
