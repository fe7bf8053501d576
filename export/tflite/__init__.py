"""TFLite files: conversion, quantization, metadata, and reading them back."""
